"""Reading a small JSON document over HTTP, for the issuer's keys. Blocking: run it in a thread."""

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

FETCH_SECONDS: Final = 5.0
MAX_BYTES: Final = 256 * 1024
_CHUNK: Final = 16 * 1024


class FetchFailed(Exception):
    """The document can't be had; the message is for the log, not for callers."""


def is_loopback(url: str) -> bool:
    """Whether the URL leads to this machine."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_fetched(url: str) -> bool:
    """https anywhere, http on this machine only: whoever can change the keys on their way can be anybody."""
    try:
        parts = urllib.parse.urlsplit(url)
        return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url)))
    except ValueError:
        return False


def fetch_json(url: str) -> dict[str, Any]:
    """The JSON object at the URL: at most 256 KiB, within five seconds or so. Redirects are not followed.

    Certificates are checked against the machine's authorities (SSL_CERT_FILE names others), and the proxy of the usual
    environment variables is used, but not to reach this machine. Raises FetchFailed.
    """
    if not may_be_fetched(url):
        raise FetchFailed("must be an https URL, or http on a loopback address")
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "errata"})  # noqa: S310  # checked above
    deadline = time.monotonic() + FETCH_SECONDS
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=FETCH_SECONDS) as reply:
            content = _read(reply, deadline)
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchFailed(f"HTTP status {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(f"{type(error).__name__}: {error}"[:500]) from None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise FetchFailed("is not JSON") from None
    if not isinstance(document, dict):
        raise FetchFailed("is not a JSON object")
    return document


def _read(reply: http.client.HTTPResponse, deadline: float) -> bytes:
    content = bytearray()
    # read1 returns what is there, so that a server which sends byte after byte can't hold us beyond the deadline.
    while chunk := reply.read1(_CHUNK):
        content += chunk
        if len(content) > MAX_BYTES:
            raise FetchFailed(f"is larger than {MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise FetchFailed("takes too long")
    return bytes(content)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect ends as an HTTPError: keys come from where the settings say, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return
