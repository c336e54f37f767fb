"""Client of Errata for asyncio: typed, with deadlines, retries, and runs that are followed across lost connections.

    from errata_client import ApiKey, ErrataClient, Tls

    async with ErrataClient("dns:///errata-orchestrator:50051", credentials=ApiKey(key), tls=Tls(ca=path)) as errata:
        async with errata.ask("How long is a backup kept?") as events:
            async for event in events:
                print(event.sequence, event.WhichOneof("payload"))

docs/api.md has an example for every RPC. Failures are ErrataError; branch on `why`.
"""

from errata_client.calls import CALL_SECONDS, RUN_SECONDS, Retries
from errata_client.client import ErrataClient, Targets
from errata_client.credentials import ApiKey, BearerToken, Credentials, Named
from errata_client.following import RunEvents
from errata_client.live_text import LiveText, TextPart, TextState
from errata_client.results import Answer, Composition
from errata_kit.errors import ErrataError, Reason
from errata_kit.rpc.tls import TlsFiles as Tls

__all__ = [
    "CALL_SECONDS",
    "RUN_SECONDS",
    "Answer",
    "ApiKey",
    "BearerToken",
    "Composition",
    "Credentials",
    "ErrataClient",
    "ErrataError",
    "LiveText",
    "Named",
    "Reason",
    "Retries",
    "RunEvents",
    "Targets",
    "TextPart",
    "TextState",
    "Tls",
]
