"""Keys, identity keys and certificates for tests of access, and a whole suite that asks for all of them."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_cli.stack import StackPlan, starting
from errata_kit.access.key_writing import NewKey, create_key, revoke_key
from errata_kit.access.principals import DEFAULT_TENANT, Role
from errata_kit.calls import current_call
from errata_kit.metrics import Metrics
from errata_kit.rpc import server as rpc_server
from errata_kit.rpc.tls import TlsFiles
from errata_kit.settings import ServiceSettings
from tests.harness.certificates import Authority, Issued, private_pem, write
from tests.harness.services import CALL_SECONDS, Below, Served, orchestrator
from tests.harness.suite import OFFLINE, Background, Suite, eventually

Metadata = tuple[tuple[str, str], ...]
SERVICES: Final = ("orchestrator", "retriever", "judge", "generator")
_START_SECONDS: Final = 60.0
QUESTION: Final = "How long does Flink 1.18 keep files?"


# --- callers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with an API key, and what they ask an orchestrator. key_id: what revokes the key."""

    name: str
    tenant: str
    key: str
    key_id: str

    @property
    def metadata(self) -> Metadata:
        """What the key's holder sends."""
        return (("authorization", f"Bearer {self.key}"),)

    @property
    def secret(self) -> str:
        """The part of the key that nobody else may ever see."""
        return self.key.rpartition("_")[2]

    def call(self, served: Served, rpc: str, request: Any, further: Metadata = (), timeout: float = CALL_SECONDS) -> Any:
        """Any RPC of the service, as this caller."""
        return getattr(served.stub, rpc)(request, metadata=(*self.metadata, *further), timeout=timeout)

    def ask(self, served: Served, question: str = QUESTION, **fields: Any) -> Any:
        """Ask; the call is a stream."""
        return self.call(served, "Ask", pb2.AskRequest(question=question, **fields))

    def watch(self, served: Served, run_id: str, after: int = 0) -> Any:
        """WatchRun; the call is a stream."""
        return self.call(served, "WatchRun", pb2.WatchRunRequest(run_id=run_id, after_sequence=after))

    def get(self, served: Served, run_id: str) -> Any:
        """GetRun."""
        return self.call(served, "GetRun", pb2.GetRunRequest(run_id=run_id))

    def cancel(self, served: Served, run_id: str) -> Any:
        """CancelRun."""
        return self.call(served, "CancelRun", pb2.CancelRunRequest(run_id=run_id))

    def resume(self, served: Served, run_id: str, decision: str = "APPROVE", **fields: Any) -> Any:
        """ResumeRun. decision: APPROVE, REJECT or REVISE."""
        request = pb2.ResumeRunRequest(run_id=run_id, decision=f"APPROVAL_DECISION_{decision}", **fields)
        return self.call(served, "ResumeRun", request)

    async def listed(self, served: Served, **fields: Any) -> list[str]:
        """The ids that ListRuns tells."""
        reply = await self.call(served, "ListRuns", pb2.ListRunsRequest(**fields))
        return [run.run_id for run in reply.runs]


async def events_of(call: Any) -> list[trace_pb2.TraceEvent]:
    """Every event of a stream, also of one that was read from before, up to its good end."""
    events = []
    while (reply := await call.read()) is not grpc.aio.EOF:
        events.append(reply.event)
    return events


async def run_id_of(call: Any) -> str:
    """The id of the run that a whole stream shows."""
    return str((await events_of(call))[0].run_id)


class KeyRing:
    """A file of API keys in a folder, and the keys in clear."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "keys.json"

    def caller(
        self, name: str, tenant: str = DEFAULT_TENANT, *roles: Role, life: datetime.timedelta | None = None, age: float = 0.0
    ) -> Caller:
        """A new key. Without roles it may ask. age: seconds since the key was made; life: how long it is good, from then on."""
        made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
        key, entry = create_key(self.path, NewKey(name, frozenset(roles or (Role.ASK,)), tenant, life), made)
        return Caller(name, tenant, key, entry.id)

    def revoke(self, caller: Caller) -> None:
        """The key is good no more."""
        revoke_key(self.path, caller.key_id, datetime.datetime.now(datetime.UTC))

    @property
    def settings(self) -> dict[str, Any]:
        """What a service that wants these keys is given, by the names of its fields."""
        return {"auth": "api-key", "api_keys_file": self.path}


# --- identities -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdentityKeys:
    """The files of a pair of Ed25519 keys: one signs who is called for, the other verifies it."""

    private: Path
    public: Path

    @classmethod
    def made(cls, folder: Path, name: str = "identity") -> IdentityKeys:
        """A fresh pair."""
        folder.mkdir(parents=True, exist_ok=True)
        key = Ed25519PrivateKey.generate()
        made = cls(folder / f"{name}.key", folder / f"{name}.pub")
        made.private.write_bytes(private_pem(key))
        public = key.public_key()
        made.public.write_bytes(
            public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return made


@dataclass(frozen=True, slots=True)
class Seen:
    """On whose behalf a scripted service was called, and by which step."""

    step: str
    name: str
    tenant: str
    roles: frozenset[Role]
    delegated: bool


class Witness:
    """Keeps on whose behalf the steps of scripted services were called: it makes hooks for their `before…` fields."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def hook(self, step: str, then: Any = None) -> Any:
        """A hook that notes the caller. then: a further hook to wait for."""

        async def note() -> None:
            caller = current_call().principal
            self.seen.append(Seen(step, caller.name, caller.tenant, caller.roles, caller.delegated))
            if then is not None:
                await then()

        return note

    def callers(self) -> set[tuple[str, str]]:
        """Tenants and names, each once."""
        return {(seen.tenant, seen.name) for seen in self.seen}

    def steps(self) -> set[str]:
        """The steps that came here."""
        return {seen.step for seen in self.seen}


@contextlib.asynccontextmanager
async def trusting(below: Below, keys: KeyRing, identity: IdentityKeys) -> AsyncIterator[dict[str, str]]:
    """The addresses of scripted services that want an API key or the orchestrator's identity."""
    settings = ServiceSettings(identity_trust_file=identity.public, **keys.settings)
    async with contextlib.AsyncExitStack() as stack:
        targets: dict[str, str] = {}
        for name, register, servicer in (
            ("retriever", retriever_grpc.add_RetrieverServiceServicer_to_server, below.retriever),
            ("judge", judge_grpc.add_JudgeServiceServicer_to_server, below.judge),
            ("generator", generator_grpc.add_GeneratorServiceServicer_to_server, below.generator),
        ):
            service = _scripted(name, register, servicer)
            started = await stack.enter_async_context(rpc_server.running(service, settings))
            targets[name] = f"127.0.0.1:{started.port}"
        yield targets


def _scripted(name: str, register: Any, servicer: Any) -> rpc_server.Service:
    return rpc_server.Service(
        name=name,
        port=0,
        metrics_port=0,
        proto_name=f"errata.{name}.v1.{name.capitalize()}Service",
        register=lambda server: register(servicer, server),
        metrics=Metrics(),
    )


@contextlib.asynccontextmanager
async def secured(below: Below, folder: Path, **settings: Any) -> AsyncIterator[tuple[Served, KeyRing, dict[str, str]]]:
    """An orchestrator with API keys that signs identities, over scripted services that trust it, and their addresses."""
    keys, identity = KeyRing(folder), IdentityKeys.made(folder)
    keys.caller("nobody")
    async with (
        trusting(below, keys, identity) as targets,
        orchestrator(**targets, identity_key_file=identity.private, **keys.settings, **settings) as served,
    ):
        yield served, keys, targets


# --- a whole suite ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecuredSuite:
    """Four processes with mutual TLS, API keys and signed identities. files: theirs; client: the certificate of a caller."""

    suite: Suite
    keys: KeyRing
    authority: Authority
    files: TlsFiles
    client: Issued

    def health_port(self, name: str) -> int:
        """The port of a service that answers health checks alone."""
        return _health_port(self.suite.log, name)

    @contextlib.contextmanager
    def channel(self, name: str, *, certificate: bool = True) -> Iterator[grpc.Channel]:
        """A channel over TLS, without retries. certificate: whether the client shows one."""
        assert self.files.ca is not None
        shown = (self.client.key, self.client.cert) if certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(self.files.ca.read_bytes(), *shown)
        options = [("grpc.enable_retries", 0)]
        with grpc.secure_channel(self.suite.target(name), credentials, options=options) as channel:
            yield channel


@contextlib.contextmanager
def secured_suite(
    background: Background, folder: Path, variables: Mapping[str, str | None] | None = None
) -> Iterator[SecuredSuite]:
    """Start the suite inside the block, ready to be called, and end it on the way out. Everything it needs is in the folder."""
    authority, keys, identity = Authority(), KeyRing(folder), IdentityKeys.made(folder)
    keys.caller("nobody")
    files = write(folder / "tls", authority.issue("errata"), authority.pem)
    own = {
        "ERRATA_AUTH": "api-key",
        "ERRATA_API_KEYS_FILE": str(keys.path),
        "ERRATA_IDENTITY_KEY_FILE": str(identity.private),
        "ERRATA_IDENTITY_TRUST_FILE": str(identity.public),
        "ERRATA_TLS_CERT_FILE": str(files.cert),
        "ERRATA_TLS_KEY_FILE": str(files.key),
        "ERRATA_TLS_CA_FILE": str(files.ca),
        "ERRATA_HEALTH_PORT": "0",
    }
    log: list[tuple[str, str]] = []
    plan = StackPlan.on_free_ports(folder / "data", {**OFFLINE, **own, **(variables or {})})
    block = starting(plan, lambda name, line: log.append((name, line)))
    stack = background.run(block.__aenter__())
    try:
        made = SecuredSuite(Suite(background, stack, log), keys, authority, files, authority.issue("caller"))
        for name in SERVICES:
            eventually(lambda name=name: told_health(log, name) == "SERVING", _START_SECONDS, f"{name} serves")  # type: ignore[misc]
        yield made
    finally:
        background.run(block.__aexit__(None, None, None))


def told_health(log: list[tuple[str, str]], name: str, asked: str = "") -> str:
    """What a service's port for health says: SERVING, NOT_SERVING, the status of a failed check, or nothing as yet."""
    port = _health_port(log, name)
    if not port:
        return ""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(service=asked), timeout=2)
        except grpc.RpcError as error:
            return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def _health_port(log: list[tuple[str, str]], name: str) -> int:
    for service, line in list(log):
        if service == name and line.startswith("{") and (entry := json.loads(line)).get("event") == "listening":
            return int(entry["health_port"])
    return 0
