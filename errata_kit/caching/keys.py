"""What a remembered result is found by."""

import hashlib
from typing import Final

from errata_kit.calls import current_call

_LAYOUT: Final = "errata:1"


def cache_key(kind: str, *parts: str) -> str:
    """The key of a result of a kind, such as "embedding", made from these parts for the tenant of this call.

    Tenants share no key, so that not even the time an answer takes tells one of them what another has asked. Only hashes
    (SHA-256) of the tenant and the parts stand in it: who can list keys learns no text.
    """
    tenant = current_call().principal.tenant
    return f"{_LAYOUT}:{kind}:{_digest(tenant)[:32]}:{_digest(kind, tenant, *parts)}"


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # Half a surrogate pair is no UTF-8, but is text that somebody may send.
        encoded = part.encode("utf-8", "surrogatepass")
        # The length stands first, so that ("ab", "c") and ("a", "bc") differ.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
