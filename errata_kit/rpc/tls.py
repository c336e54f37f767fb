"""TLS between the services, from files that are read again when they change.

Three files, all PEM: a certificate chain (the own certificate first), its private key, and the authorities that the other
side's certificate must come from. gRPC's defaults choose protocol and ciphers: TLS 1.2 at least, and forward secrecy.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from errata_kit.access.settings import AccessSettings
from errata_kit.errors import StartFailed
from errata_kit.logs import get_logger

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_log = get_logger("errata.tls")


class TlsFilesUnusable(StartFailed):
    """A TLS file is missing or broken, or certificate and key are not a pair. The message names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files are. cert and key go together.

    Without them a client shows no certificate. Without ca a client trusts the public authorities that grpcio brings along,
    or those in the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names.
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the files held at one moment. It has been checked: certificate and key are a pair, the authorities can be read.

    expires_at: when the first certificate of the chain expires, in seconds since 1970; None without a certificate.
    """

    cert: bytes | None
    key: bytes | None
    ca: bytes | None
    expires_at: float | None


def tls_files(settings: AccessSettings) -> TlsFiles | None:
    """The files that the settings name; None when they name none, which means connections without TLS."""
    files = TlsFiles(settings.tls_cert_file, settings.tls_key_file, settings.tls_ca_file)
    return None if files == TlsFiles() else files


def certificate_expiry(files: TlsFiles) -> float:
    """When the first certificate of the chain that is in the file now expires, in seconds since 1970.

    Raises TlsFilesUnusable when there is no such file or it can't be used.
    """
    expires_at = read_tls(files).expires_at
    if expires_at is None:
        raise TlsFilesUnusable("No TLS certificate is set")
    return expires_at


def server_credentials(
    files: TlsFiles, require_client: bool, loaded: Callable[[float], object] | None = None
) -> grpc.ServerCredentials:
    """Credentials of a server, whose files are looked at for each new connection; those that are open go on.

    require_client: refuse clients without a certificate from the authorities in files.ca. loaded: is told when the
    certificate in use expires (seconds since 1970), now and after each change; it may be called from another thread.
    Raises TlsFilesUnusable when the files are no good now. Later the last good ones stay in use.
    """
    if files.cert is None:
        raise TlsFilesUnusable("A server with TLS needs a certificate")
    if require_client and files.ca is None:
        raise TlsFilesUnusable("A server that asks clients for a certificate needs a file of authorities")
    source = TlsSource(files)
    lock = threading.Lock()

    def told(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
        if loaded is not None and material.expires_at is not None:
            loaded(material.expires_at)
        return grpc.ssl_server_certificate_configuration([(material.key or b"", material.cert or b"")], material.ca)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # gRPC asks from threads of its own. Three small files are read in a hundredth of the time that the handshake takes,
        # and a client that is ahead of us with new files is not refused.
        with lock:
            return told(source.material) if source.refresh() else None

    # The type stubs don't know that None stands for "as before".
    fetch: Any = changed
    return grpc.dynamic_ssl_server_credentials(told(source.material), fetch, require_client)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials of a client as the files are now; ReloadingChannel follows their changes. Raises TlsFilesUnusable."""
    return credentials_of(read_tls(files))


def credentials_of(material: TlsMaterial) -> grpc.ChannelCredentials:
    """Credentials of a client."""
    return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)


class TlsSource:
    """The last good contents of the files. Not safe for several threads at once."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises TlsFilesUnusable."""
        self._files = files
        self._problem = ""
        self.material = read_tls(files)

    def refresh(self) -> bool:
        """Read the files again; whether there is something new to use. What can't be used is logged once, and left."""
        try:
            # Contents and not time stamps: two changes may fall on one tick of the clock.
            material = read_tls(self._files, self.material)
        except TlsFilesUnusable as error:
            if error.message != self._problem:
                self._problem = error.message
                _log.error("tls_files_unusable", error=error.message, kept_until=self.material.expires_at)
            return False
        self._problem = ""
        if material is self.material:
            return False
        self.material = material
        _log.info("tls_files_reloaded", certificate=str(self._files.cert), expires_at=material.expires_at)
        return True


def read_tls(files: TlsFiles, before: TlsMaterial | None = None) -> TlsMaterial:
    """Read and check the files. What equals `before` is not checked again, and gives that very object.

    Raises TlsFilesUnusable.
    """
    first = _read(files)
    try:
        return _checked(files, first, before)
    except TlsFilesUnusable:
        # They may have been replaced between two of the reads.
        second = _read(files)
        if second == first:
            raise
        return _checked(files, second, before)


_Contents = tuple[bytes | None, bytes | None, bytes | None]


def _read(files: TlsFiles) -> _Contents:
    def contents(path: Path | None) -> bytes | None:
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise TlsFilesUnusable(f"The TLS file {path} can't be read: {error.strerror or type(error).__name__}") from None

    return contents(files.cert), contents(files.key), contents(files.ca)


def _checked(files: TlsFiles, contents: _Contents, before: TlsMaterial | None) -> TlsMaterial:
    cert, key, ca = contents
    if before is not None and contents == (before.cert, before.key, before.ca):
        return before
    if ca is not None:
        _certificates(files.ca, ca)
    if (cert is None) != (key is None):
        raise TlsFilesUnusable(f"A TLS certificate and its key go together, and there is only {files.cert or files.key}")
    if cert is None or key is None:
        return TlsMaterial(None, None, ca, None)
    own = _certificates(files.cert, cert)[0]
    if _public_key(files.key, key) != own.public_key():
        raise TlsFilesUnusable(f"The TLS key {files.key} is not that of the first certificate in {files.cert}")
    return TlsMaterial(cert, key, ca, own.not_valid_after_utc.timestamp())


def _certificates(path: Path | None, pem: bytes) -> "list[Certificate]":
    # Imported here because a process without TLS does not need it.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except ValueError:
        raise TlsFilesUnusable(f"The TLS file {path} holds something else than certificates in PEM") from None


def _public_key(path: Path | None, pem: bytes) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise TlsFilesUnusable(f"The TLS key {path} is encrypted with a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TlsFilesUnusable(f"The TLS file {path} does not hold a private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TlsFilesUnusable(f"The TLS key {path} is of a kind that gRPC does not offer; take EC (P-256) or RSA")
    return key.public_key()
