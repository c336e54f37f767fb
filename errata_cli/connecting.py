"""Channels of the command line: what the environment says about the caller's credential and about TLS.

Credentials have no options: an option's value can be read by everybody who may list the machine's processes.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc

from errata_cli.terminal import UsageError
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.tls import TlsFiles

API_KEY: Final = "ERRATA_API_KEY"
"""An API key, or a token of the identity provider. With _FILE behind it, the file that holds it."""
_TLS: Final = ("ERRATA_TLS_CERT_FILE", "ERRATA_TLS_KEY_FILE", "ERRATA_TLS_CA_FILE")


def connect(target: str) -> grpc.aio.Channel:
    """A channel to a service. With any of the variables of TLS set, or ERRATA_TLS=1, the connection is encrypted.

    Raises UsageError for a file that can't be read, and for a credential that would leave this machine unencrypted.
    """
    files = _tls_files()
    credential = _credential()
    if credential and files is None and not _is_loopback(target):
        raise UsageError(f"{API_KEY} would be sent to {target} unencrypted: set ERRATA_TLS=1 or ERRATA_TLS_CA_FILE")
    return open_channel(target, files, _Showing.all_for(credential) if credential else ())


def _credential() -> str:
    path = os.environ.get(f"{API_KEY}_FILE")
    if not path:
        return os.environ.get(API_KEY, "").strip()
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{API_KEY}_FILE: the file {path} can't be read") from None


def _tls_files() -> TlsFiles | None:
    paths = [os.environ.get(name) or None for name in _TLS]
    if not any(paths) and os.environ.get("ERRATA_TLS", "") in {"", "0"}:
        return None
    return TlsFiles(*(Path(path) if path else None for path in paths))


def _is_loopback(target: str) -> bool:
    from errata_client.credentials import is_loopback

    return is_loopback(target)


class _Showing:
    """Adds the credential to the metadata of each call, whatever its kind."""

    def __init__(self, credential: str) -> None:
        self._entry = ("authorization", f"Bearer {credential}")

    @classmethod
    def all_for(cls, credential: str) -> tuple[grpc.aio.ClientInterceptor, ...]:
        """One interceptor for each kind of call: grpc takes an object for one kind only."""
        return (_Unary(credential), _Answered(credential), _Both(credential))

    async def _shown(self, continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), self._entry)
        named = grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )
        return await continuation(named, request)


class _Unary(_Showing, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._shown(continuation, client_call_details, request)


class _Answered(_Showing, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._shown(continuation, client_call_details, request)


class _Both(_Showing, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._shown(continuation, client_call_details, request_iterator)
