"""Sizes of the contract that the transport enforces."""

from typing import Final

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""Largest gRPC message, both ways."""
