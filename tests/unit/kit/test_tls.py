"""TLS files: what is accepted at the start, what the last good ones are, and what is said about the others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from structlog.testing import capture_logs

from errata_kit.access.settings import AccessSettings
from errata_kit.errors import StartFailed
from errata_kit.rpc import tls
from errata_kit.rpc.tls import TlsFiles, TlsSource, certificate_expiry, channel_credentials, server_credentials, tls_files
from tests.harness.certificates import Authority, Issued, expiry, private_pem, write


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue()


def settings(**values: Any) -> AccessSettings:
    return AccessSettings(**values)


def test_settings_name_the_files(tmp_path: Path, authority: Authority, issued: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_files(settings()) is None
    files = write(tmp_path, issued, authority.pem)
    monkeypatch.setenv("ERRATA_TLS_CA_FILE", str(files.ca))
    assert tls_files(settings()) == TlsFiles(None, None, files.ca)
    monkeypatch.setenv("ERRATA_TLS_CERT_FILE", str(files.cert))
    monkeypatch.setenv("ERRATA_TLS_KEY_FILE", str(files.key))
    assert tls_files(settings()) == files


BROKEN: dict[str, tuple[str, Callable[[Issued], bytes]]] = {
    "something else than certificates": ("cert", lambda _: b"not a certificate"),
    "certificates in PEM": ("cert", lambda issued: issued.cert[:200]),
    "is not that of": ("key", lambda _: private_pem(ec.generate_private_key(ec.SECP256R1()))),
    "does not hold a private key": ("key", lambda issued: issued.cert),
    "is encrypted": ("key", lambda _: private_pem(ec.generate_private_key(ec.SECP256R1()), b"secret")),
    "take EC": ("key", lambda _: private_pem(ed25519.Ed25519PrivateKey.generate())),
    "than certificates": ("ca", lambda _: b""),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_start_with_bad_files_fails_and_names_the_file(
    tmp_path: Path, authority: Authority, issued: Issued, sentence: str
) -> None:
    which, contents = BROKEN[sentence]
    files = write(tmp_path, issued, authority.pem)
    path: Path = getattr(files, which)
    path.write_bytes(contents(issued))
    for use in (lambda: server_credentials(files, True), lambda: channel_credentials(files), lambda: certificate_expiry(files)):
        with pytest.raises(StartFailed, match=sentence) as caught:
            use()
        assert str(path) in caught.value.message


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, authority: Authority, issued: Issued, which: str) -> None:
    files = write(tmp_path, issued, authority.pem)
    path: Path = getattr(files, which)
    path.unlink()
    with pytest.raises(StartFailed, match="can't be read: No such file") as caught:
        server_credentials(files, True)
    assert str(path) in caught.value.message


def test_what_is_missing_among_the_settings_is_said(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    files = write(tmp_path, issued, authority.pem)
    with pytest.raises(StartFailed, match="needs a certificate"):
        server_credentials(TlsFiles(ca=files.ca), False)
    with pytest.raises(StartFailed, match="needs a file of authorities"):
        server_credentials(replace(files, ca=None), True)
    with pytest.raises(StartFailed, match="go together"):
        channel_credentials(replace(files, key=None))
    with pytest.raises(StartFailed, match="No TLS certificate"):
        certificate_expiry(TlsFiles(ca=files.ca))
    # Only an authority, or not even that: a client without a certificate.
    channel_credentials(TlsFiles(ca=files.ca))
    channel_credentials(TlsFiles())


def test_expiry_is_that_of_the_first_certificate_of_the_chain(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue(days=3)
    chain = Issued(issued.cert + authority.pem, issued.key)
    assert certificate_expiry(write(tmp_path, chain, authority.pem)) == expiry(issued)


def test_unchanged_files_are_not_checked_again(
    tmp_path: Path, authority: Authority, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TlsSource(write(tmp_path, issued, authority.pem))
    before = source.material
    monkeypatch.setattr(tls, "_certificates", None)
    assert not source.refresh()
    assert source.material is before


def test_a_new_pair_is_seen_whatever_its_time_stamp_says(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    files = write(tmp_path, issued, authority.pem)
    source = TlsSource(files)
    later = authority.issue()
    with capture_logs() as logs:
        write(tmp_path, later, authority.pem)
        assert source.refresh()
        assert not source.refresh()
    assert source.material.cert == later.cert
    assert [(log["event"], log["log_level"]) for log in logs] == [("tls_files_reloaded", "info")]


def test_a_problem_is_logged_once_until_it_is_another(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    files = write(tmp_path, issued, authority.pem)
    assert files.cert is not None
    source = TlsSource(files)

    def said(contents: bytes | None) -> int:
        with capture_logs() as logs:
            if contents is None:
                files.cert.unlink()  # type: ignore[union-attr]  # asserted above
            else:
                files.cert.write_bytes(contents)  # type: ignore[union-attr]
            for _ in range(3):
                assert not source.refresh()
            assert all(issued.key.decode() not in str(log) for log in logs)
        return len(logs)

    assert said(b"broken") == 1
    assert said(b"broken in another way") == 0, "the sentence would be the same"
    assert said(None) == 1
    assert said(issued.cert) == 0, "and all is well again, without news"
    assert said(b"broken") == 1


def test_files_replaced_between_two_reads_are_read_again(
    tmp_path: Path, authority: Authority, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path, issued, authority.pem)
    source = TlsSource(files)
    later = authority.issue()
    read: Any = Path.read_bytes

    def slow(path: Path) -> bytes:
        contents: bytes = read(path)
        if path == files.cert and contents == issued.cert:
            # The certificate has been read, its key has not.
            write(tmp_path, later, authority.pem)
        return contents

    monkeypatch.setattr(Path, "read_bytes", slow)
    with capture_logs() as logs:
        assert source.refresh()
    assert (source.material.cert, source.material.key) == (later.cert, later.key)
    assert [log["log_level"] for log in logs] == ["info"]
