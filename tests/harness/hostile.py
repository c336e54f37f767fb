"""Hostile requests over every RPC, as bytes on the wire, and what they came to.

`Attacker` makes them: methods come from the descriptors, so that a new RPC is attacked as soon as it is there. `send` makes one
call and never raises for what the server answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from errata.generator.v1 import generator_service_pb2
from errata.judge.v1 import judge_service_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2
from errata.retriever.v1 import retriever_service_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from errata_kit.rpc.limits import MESSAGE_BYTES
from tests.harness.hostile_metadata import hostile_metadata, hostile_timeout
from tests.harness.hostile_texts import hostile_document, hostile_text
from tests.harness.hostile_wire import KIB, NOT_UTF8, Writer, mangled, nested, nested_filter, tagged

COLLECTION: Final = "hostile"
CANARY: Final = "cormorant-7731-canary"
"""Stands in the texts that are sent and in a document of another collection: it must be in no log and in no foreign answer."""
FILES: Final = {
    "orchestrator": orchestrator_service_pb2,
    "retriever": retriever_service_pb2,
    "judge": judge_service_pb2,
    "generator": generator_service_pb2,
}
_OWN_FAILURE: Final = "Internal error from Core"
"""What grpcio's client says when it can't send at all: a header that HTTP/2 forbids, or a stream that has ended already."""


@dataclass(frozen=True, slots=True)
class Method:
    """An RPC of a running service. `request` is the message's descriptor, None where nothing listens."""

    service: str
    path: str
    request: Any
    client_streaming: bool = False
    server_streaming: bool = False


@dataclass(frozen=True, slots=True)
class Attack:
    """One call: what is sent, and how the caller behaves. `leave` is after how many seconds it goes away, or None."""

    family: str
    method: Method
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    timeout: float = 5.0
    leave: float | None = None
    half_closes: bool = True
    reads: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack came to. `said` is all text outside messages, `received` the messages, as bytes."""

    attack: Attack
    status: str
    said: str
    received: bytes
    seconds: float


def methods() -> list[Method]:
    """Every RPC of the four services, with health, reflection, and some that do not exist, at each of them."""
    found: list[Method] = []
    for service, file in FILES.items():
        for described in file.DESCRIPTOR.services_by_name.values():
            found.extend(
                Method(
                    service, f"/{described.full_name}/{rpc.name}", rpc.input_type, rpc.client_streaming, rpc.server_streaming
                )
                for rpc in described.methods
            )
        check, reflect = health_pb2.HealthCheckRequest.DESCRIPTOR, reflection_pb2.ServerReflectionRequest.DESCRIPTOR
        found.append(Method(service, "/grpc.health.v1.Health/Check", check))
        found.append(Method(service, "/grpc.health.v1.Health/Watch", check, server_streaming=True))
        for version in ("v1", "v1alpha"):
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            found.append(Method(service, path, reflect, client_streaming=True, server_streaming=True))
        found.extend(Method(service, path, None) for path in ("/", "/a", "/a.B/C", "/errata.judge.v1.JudgeService/", "/%00/\t"))
    return found


class Attacker:
    """Makes attacks, the same ones for the same seed. `heavy` is the share of requests of megabytes."""

    def __init__(self, seed: int, heavy: float = 0.003) -> None:
        self._random = random.Random(seed)
        self._heavy = heavy
        every = methods()
        own = [item for item in every if item.request is not None and "/errata." in item.path]
        # Health, reflection and what does not exist get a tenth of all.
        self._own, self._others = own, [item for item in every if item not in own]
        self._ways: Mapping[str, tuple[int, Callable[[Method], Attack]]] = {
            "random bytes": (14, self._bytes),
            "spoilt": (22, self._spoilt),
            "extreme values": (20, self._extreme),
            "one extreme value": (14, self._nearly_sound),
            "hostile text": (5, self._sound),
            "nested": (6, self._nested),
            "not utf-8": (5, self._not_utf8),
            "nothing": (3, self._nothing),
            "metadata": (6, self._metadata),
            "streams": (5, self._streams),
        }

    def attack(self) -> Attack:
        """The next attack."""
        if self._random.random() < self._heavy:
            return self._huge(self._random.choice(self._own))
        method = self._random.choice(self._own if self._random.random() < 0.9 else self._others)
        way = self._random.choices(list(self._ways), [weight for weight, _ in self._ways.values()])[0]
        return self._ways[way][1](method)

    def _values(self) -> dict[str, Callable[[random.Random], Any]]:
        text = self._text
        return {
            "question": lambda _: text(8 * KIB),
            "task": lambda _: text(8 * KIB),
            "query": lambda _: text(8 * KIB),
            "current_query": lambda _: text(8 * KIB),
            "tried_queries": lambda _: text(KIB),
            "collection": lambda _: COLLECTION,
            "passage_id": lambda dice: f"p{dice.randrange(10**9)}",
            "document_id": lambda dice: f"d{dice.randrange(40)}",
            "claim_id": lambda dice: f"c{dice.randrange(9)}",
            "criterion": lambda _: "clarity",
            "name": lambda dice: dice.choice(("clarity", "relevance", "a_b")),
            "run_id": lambda dice: f"01890000-0000-7000-8000-{dice.randrange(9):012d}",
            "top_k": lambda dice: dice.randrange(1, 101),
            "overall_threshold": lambda dice: dice.random(),
            "threshold": lambda dice: dice.random(),
            "support": lambda dice: dice.random(),
            "text": lambda dice: text(dice.choice((200, 4 * KIB))),
            "answer": lambda dice: text(dice.choice((200, 4 * KIB))),
            "draft": lambda dice: text(dice.choice((200, 4 * KIB))),
            "document": lambda _: "",
            "passages": lambda _: "",
            "request_id": lambda dice: f"r{dice.randrange(10**9)}",
            "page_token": lambda _: "",
            "start": lambda _: 0,
            "end": lambda dice: dice.randrange(9),
            "service": lambda _: "",
        }

    def _text(self, size: int) -> str:
        size = self._random.choice((64, 256, min(size, 2 * KIB), size))
        body = hostile_text(self._random, size - 80).replace("\0", "")
        return f"{CANARY} what is {body} ."

    def _write(self, method: Method, sane: float, **options: Any) -> bytes:
        if method.request is None:
            return self._random.randbytes(8)
        return Writer(self._random, sane, self._values(), **options).message(method.request)

    def _made(self, family: str, method: Method, *messages: bytes, **more: Any) -> Attack:
        more.setdefault("timeout", self._random.choice((2.0, 5.0, 5.0)))
        if method.path.endswith("/Watch"):
            more["timeout"] = 0.05
        return Attack(family, method, messages, **more)

    def _bytes(self, method: Method) -> Attack:
        return self._made("random bytes", method, self._random.randbytes(self._random.choice((0, 1, 2, 7, 64, 1000))))

    def _spoilt(self, method: Method) -> Attack:
        encoded = self._write(method, self._random.choice((0.5, 1.0)), left=4 * KIB)
        return self._made("spoilt", method, mangled(self._random, encoded))

    def _extreme(self, method: Method) -> Attack:
        every = self._random.random() < 0.3
        encoded = self._write(method, 0.0, left=self._random.choice((KIB, 16 * KIB, 64 * KIB)), all_fields=every)
        return self._made("extreme values", method, encoded)

    def _nearly_sound(self, method: Method) -> Attack:
        return self._made("one extreme value", method, self._write(method, 0.9, left=32 * KIB))

    def _sound(self, method: Method) -> Attack:
        count = self._random.randrange(1, 4) if method.client_streaming else 1
        written = [self._write(method, 1.0, left=32 * KIB) for _ in range(count)]
        if method.path.endswith("/IngestDocuments"):
            written = [self._document(self._random.choice((KIB, 16 * KIB))) for _ in range(count)]
        return self._made("hostile text", method, *written)

    def _document(self, size: int) -> bytes:
        body = hostile_document(self._random, size).encode()
        inner = tagged(1, 2, f"d{self._random.randrange(40)}.md".encode()) + tagged(self._random.choice((4, 5)), 2, body)
        return tagged(1, 2, COLLECTION.encode()) + tagged(2, 2, inner)

    def _nested(self, method: Method) -> Attack:
        depth = self._random.choice((4, 5, 6, 49, 50, 51, 99, 100, 101, 1000))
        number = self._random.randrange(1, 12)
        deep = nested_filter(self._random, depth) if self._random.random() < 0.7 else nested(number, depth, b"")
        return self._made("nested", method, self._write(method, 1.0, left=2 * KIB) + tagged(number, 2, deep))

    def _not_utf8(self, method: Method) -> Attack:
        spoilt = tagged(self._random.randrange(1, 9), 2, self._random.choice(NOT_UTF8))
        return self._made("not utf-8", method, self._write(method, 1.0, left=KIB) + spoilt)

    def _nothing(self, method: Method) -> Attack:
        count = self._random.choice((0, 1, 2)) if method.client_streaming else 1
        return self._made("nothing", method, *[b""] * count, timeout=1.0)

    def _metadata(self, method: Method) -> Attack:
        body = self._write(method, 0.9, left=2 * KIB)
        timeout = hostile_timeout(self._random)
        return self._made("metadata", method, body, metadata=hostile_metadata(self._random, CANARY), timeout=timeout)

    def _streams(self, method: Method) -> Attack:
        count = self._random.choice((0, 1, 3)) if method.client_streaming else 1
        messages = [self._write(method, 1.0, left=4 * KIB) for _ in range(count)]
        leave = self._random.choice((None, 0.0, 0.001, 0.02, 0.2))
        open_ended, reads = self._random.random() < 0.5, self._random.random() < 0.5
        timeout = self._random.choice((0.3, 1.0))
        return self._made("streams", method, *messages, leave=leave, half_closes=not open_ended, reads=reads, timeout=timeout)

    def _huge(self, method: Method) -> Attack:
        size = self._random.choice((MESSAGE_BYTES - 64, MESSAGE_BYTES, MESSAGE_BYTES + 1, KIB * KIB))
        number = self._random.randrange(1, 8)
        body = self._random.choice(
            (
                lambda: tagged(number, 2, b"a" * size),
                lambda: tagged(number, 2, b"") * (min(size, KIB * KIB) // 2),
                lambda: tagged(number, 2, tagged(1, 2, b"p")) * 100_000,
                lambda: tagged(number, 2, self._random.randbytes(size)),
                lambda: tagged(number, 0, b"\x01") * (size // 2),
            )
        )()
        return self._made("huge", method, body, timeout=10.0)


async def send(channel: grpc.aio.Channel, attack: Attack) -> Outcome:
    """Make the call of an attack, and say what came of it."""
    started = time.monotonic()
    received: list[bytes] = []
    # One kind of call fits all methods, since on the wire there is only one.
    begin = channel.stream_stream(attack.method.path, request_serializer=_same, response_deserializer=_same)
    call = begin(_sent(attack), timeout=attack.timeout, metadata=attack.metadata)
    status, said = "OK", ""
    try:
        async with asyncio.timeout(attack.leave):
            if attack.reads:
                async for message in call:
                    received.append(message)
            status, said = (await call.code()).name, _said(await call.details(), await call.trailing_metadata())
    except TimeoutError:
        status = "CANCELLED"
    except grpc.aio.AioRpcError as error:
        status, said = error.code().name, _said(error.details(), error.trailing_metadata())
    except (grpc.aio.UsageError, asyncio.InvalidStateError, grpc.aio.InternalError):
        status = "CANCELLED"
    except asyncio.CancelledError:
        # grpcio says so of a call that has ended as CANCELLED, too.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        status = "CANCELLED"
    finally:
        call.cancel()
    if status == "INTERNAL" and said.strip() == _OWN_FAILURE:
        status = "UNSENT"
    return Outcome(attack, status, said, b"".join(received), time.monotonic() - started)


async def storm(targets: Mapping[str, str], attacks: Sequence[Attack], at_once: int) -> AsyncGenerator[Outcome, None]:
    """The outcomes of attacks, so many at a time, over two channels for each service, in the order in which they end."""
    async with contextlib.AsyncExitStack() as stack:
        channels = {
            name: [await stack.enter_async_context(open_hostile(target)) for _ in range(2)] for name, target in targets.items()
        }
        waiting: set[asyncio.Task[Outcome]] = set()
        for place, attack in enumerate(attacks):
            waiting.add(asyncio.create_task(send(channels[attack.method.service][place % 2], attack)))
            while len(waiting) >= at_once:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        for last in asyncio.as_completed(waiting):
            yield await last


def open_hostile(target: str) -> grpc.aio.Channel:
    """A channel of its own connection that refuses nothing and retries nothing."""
    unlimited = ("grpc.max_send_message_length", "grpc.max_receive_message_length", "grpc.max_metadata_size")
    return grpc.aio.insecure_channel(
        target,
        options=[
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 200),
            *((name, -1 if "message" in name else 1 << 24) for name in unlimited),
        ],
    )


async def _sent(attack: Attack) -> AsyncIterator[bytes]:
    for message in attack.messages:
        yield message
    if not attack.half_closes:
        await asyncio.sleep(attack.timeout + 1)


def _same(encoded: bytes) -> bytes:
    return encoded


def _said(details: str | None, trailers: Any) -> str:
    return "\n".join([details or "", *(f"{key}: {value!r}" for key, value in trailers or ())])
