"""Certificates for tests: authorities, what they issue, and the ways in which files are replaced."""

import asyncio
import datetime
import ipaddress
import os
import shutil
import socket
import ssl
import warnings
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from errata_kit.rpc.tls import TlsFiles

LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, in PEM."""

    cert: bytes
    key: bytes


class Authority:
    """Signs certificates (EC, P-256) for servers and clients."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        now = _now()
        signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._cert = (
            _builder(self._name, self._name, self._key.public_key())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(signs, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return self._cert.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str = "service", hosts: tuple[str, ...] = LOCAL, days: float = 1.0) -> Issued:
        """A certificate for these host names and addresses. It ends in so many days; a negative number means days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = _now()
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        cert = (
            _builder(_name(name), self._name, key.public_key())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Issued(cert.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: PrivateKeyTypes, passphrase: bytes = b"") -> bytes:
    """A private key in PEM (PKCS 8), encrypted when there is a passphrase."""
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def replace(path: Path, contents: bytes) -> None:
    """Put a new file in the place of the old one, in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(contents)
    fresh.replace(path)


def write(folder: Path, issued: Issued | None, authorities: bytes | None) -> TlsFiles:
    """Write (or replace, one after the other) tls.key, tls.crt and ca.crt in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if issued is not None:
        replace(folder / "tls.key", issued.key)
        replace(folder / "tls.crt", issued.cert)
    if authorities is not None:
        replace(folder / "ca.crt", authorities)
    return files_in(folder, issued is not None, authorities is not None)


def mount(folder: Path, issued: Issued, authorities: bytes) -> TlsFiles:
    """Write or replace all three at once, as Kubernetes does with a secret.

    The files are links to ..data/NAME, and ..data is a link to a folder that is swapped in one step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = list(folder.glob("..20*"))
    version = folder / f"..20{_now():%y_%m_%d_%H_%M_%S_%f}"
    write(version, issued, authorities)
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    os.replace(link, folder / "..data")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for old in before:
        shutil.rmtree(old)
    return files_in(folder)


def files_in(folder: Path, issued: bool = True, authorities: bool = True) -> TlsFiles:
    """The paths that `write` and `mount` write to."""
    cert, key = (folder / "tls.crt", folder / "tls.key") if issued else (None, None)
    return TlsFiles(cert, key, folder / "ca.crt" if authorities else None)


async def shown(port: int, files: TlsFiles, version: ssl.TLSVersion | None = None) -> int:
    """The serial number of the certificate that a new connection is shown."""

    def handshake() -> int:
        context = ssl.create_default_context(cafile=str(files.ca))
        context.set_alpn_protocols(["h2"])
        if version is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
                context.minimum_version = context.maximum_version = version
        if files.cert is not None and files.key is not None:
            context.load_cert_chain(files.cert, files.key)
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"").serial_number

    return await asyncio.to_thread(handshake)


def serial(issued: Issued) -> int:
    """The serial number of a certificate."""
    return x509.load_pem_x509_certificate(issued.cert).serial_number


def expiry(issued: Issued) -> float:
    """When a certificate expires, in seconds since 1970."""
    return x509.load_pem_x509_certificate(issued.cert).not_valid_after_utc.timestamp()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
