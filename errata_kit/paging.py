"""Opaque page tokens: they say where a page ended, and which query it was a page of."""

import base64
import json

from errata_kit.bounds import invalid

# A token holds a prefix and an id of at most 512 bytes each, at worst six characters a byte, in base64.
_MAX_TOKEN = 16 * 1024


def page_token(query: list[str], after: str) -> str:
    """The token for what follows `after` in a query's results."""
    return base64.urlsafe_b64encode(json.dumps([query, after]).encode()).decode()


def after_of(token: str, query: list[str]) -> str:
    """Where the page before ended; empty for an empty token. Raises InvalidFields for a token of another query, or none."""
    if not token:
        return ""
    try:
        if len(token) > _MAX_TOKEN:
            raise ValueError("longer than any token")
        of, after = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, RecursionError):
        raise invalid("page_token", "is not a token of this service") from None
    if of != query or not isinstance(after, str):
        raise invalid("page_token", "belongs to another query")
    return after
