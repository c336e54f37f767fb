"""TLS between services over the wire: who is refused, and what new files do to connections, calls and streams."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from errata_kit.rpc.reloading import ReloadingChannel
from errata_kit.rpc.tls import TlsFiles, certificate_expiry, channel_credentials
from tests.harness.certificates import LOCAL, Authority, Issued, mount, serial, shown, write
from tests.harness.tls_server import HeldBack, serving, until, until_known_as, who

GRPCURL = Path(sys.executable).parent / "grpcurl"
QUICK = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))
WRITERS = pytest.mark.parametrize("put", [write, mount], ids=["rename", "symlink"])

Put = Callable[[Path, Issued, bytes], TlsFiles]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata_kit.rpc.reloading._LOOK_SECONDS", 0.01)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def reloading(port: int, files: TlsFiles) -> ReloadingChannel:
    return ReloadingChannel(f"localhost:{port}", files, QUICK)


async def test_both_sides_show_their_certificates(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path / "server", authority.issue("judge"), authority.pem)
    client = write(tmp_path / "client", authority.issue("orchestrator"), authority.pem)
    async with serving(files) as served, reloading(served.port, client) as channel:
        assert (await who(channel))[0] == "orchestrator"
        assert served.expiries == [certificate_expiry(files)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{served.port}", channel_credentials(client)) as fixed:
            assert (await who(fixed))[0] == "orchestrator"


async def test_a_client_needs_only_the_authority_where_none_must_show_a_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    files = write(tmp_path, authority.issue(), authority.pem)
    async with serving(files, require_client=False) as served, reloading(served.port, TlsFiles(ca=files.ca)) as channel:
        assert (await who(channel))[0] == "nobody"


@pytest.mark.parametrize(
    "fault",
    ["server of another authority", "client of another authority", "client without certificate", "no authority named",
     "expired client", "expired server", "another host"],
)  # fmt: skip
async def test_who_is_refused(tmp_path: Path, authority: Authority, fault: str) -> None:
    other = Authority("authority")
    issuer = other if fault == "server of another authority" else authority
    hosts = ("judge.errata.svc",) if fault == "another host" else LOCAL
    issued = issuer.issue(hosts=hosts, days=-1 if fault == "expired server" else 1)
    files = write(tmp_path / "server", issued, authority.pem)
    issuer = other if fault == "client of another authority" else authority
    own = issuer.issue(days=-1 if fault == "expired client" else 1)
    client = write(tmp_path / "client", own, authority.pem)
    if fault == "client without certificate":
        client = replace(client, cert=None, key=None)
    if fault == "no authority named":
        client = replace(client, ca=None)
    async with serving(files) as served, reloading(served.port, client) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await who(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert served.peers == []


async def test_tls_is_1_2_at_least(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path, authority.issue(), authority.pem)
    async with serving(files) as served:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert await shown(served.port, files, version)
        # It hangs up; a client that has no such version itself says so instead.
        with pytest.raises(OSError, match=r"EOF|reset|ALERT"):
            await shown(served.port, files, ssl.TLSVersion.TLSv1_1)


@WRITERS
async def test_new_connections_are_shown_the_new_certificate(tmp_path: Path, authority: Authority, put: Put) -> None:
    first, second = authority.issue(days=1), authority.issue(days=2)
    files = put(tmp_path / "server", first, authority.pem)
    client = write(tmp_path / "client", authority.issue("orchestrator"), authority.pem)
    async with serving(files) as served, reloading(served.port, client) as channel:
        before = await who(channel)
        assert await shown(served.port, client) == serial(first)
        put(tmp_path / "server", second, authority.pem)
        assert await shown(served.port, client) == serial(second)
        assert await who(channel) == before, "the open connection went on"
        assert served.expiries[1] - served.expiries[0] == pytest.approx(86_400, abs=2)


async def test_a_server_takes_new_authorities_too(tmp_path: Path, authority: Authority) -> None:
    other = Authority("another")
    files = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", other.issue("orchestrator"), authority.pem)
    async with serving(files) as served, reloading(served.port, client) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await who(channel)
        write(tmp_path / "server", None, authority.pem + other.pem)
        async with reloading(served.port, client) as again:
            assert (await who(again))[0] == "orchestrator"


@pytest.mark.parametrize("fault", ["half written", "another key", "missing"])
async def test_broken_files_leave_the_last_good_ones_in_use(tmp_path: Path, authority: Authority, fault: str) -> None:
    first, second = authority.issue("orchestrator"), authority.issue("later")
    files = write(tmp_path, first, authority.pem)
    client = write(tmp_path / "client", authority.issue(), authority.pem)
    assert files.cert is not None
    async with serving(files) as served, reloading(served.port, files) as channel:
        before = await who(channel)
        with capture_logs() as logs:
            if fault == "half written":
                files.cert.write_bytes(second.cert[: len(second.cert) // 2])
            elif fault == "another key":
                files.cert.write_bytes(second.cert)
            else:
                files.cert.unlink()
            for _ in range(3):
                assert await shown(served.port, client) == serial(first)
                await asyncio.sleep(0.02)
                assert await who(channel) == before
        assert [log["log_level"] for log in logs] == ["error", "error"], "one of the server, one of the client"
        assert str(files.cert) in logs[0]["error"]
        write(tmp_path, second, authority.pem)
        assert await shown(served.port, client) == serial(second)
        await until_known_as(channel, "later")


@WRITERS
async def test_no_call_fails_while_everything_is_replaced(tmp_path: Path, put: Put) -> None:
    old, new = Authority("old"), Authority("new")
    server = put(tmp_path / "server", old.issue(), old.pem)
    client = put(tmp_path / "client", old.issue("before"), old.pem)
    async with serving(server) as served, reloading(served.port, client) as channel:
        under_way = [asyncio.create_task(who(channel, 0.5)) for _ in range(150)]
        stopped = asyncio.Event()

        async def calling() -> list[str]:
            names = []
            while not stopped.is_set():
                names.append((await who(channel, 0.005))[0])
            return names

        going_on = [asyncio.create_task(calling()) for _ in range(8)]
        await until_known_as(channel, "before")
        # Trust first, then certificates, then an end to the old trust: the order that needs no moment in common.
        put(tmp_path / "client", old.issue("before"), old.pem + new.pem)
        put(tmp_path / "server", new.issue(), old.pem + new.pem)
        put(tmp_path / "client", new.issue("after"), new.pem)
        await until_known_as(channel, "after")
        put(tmp_path / "server", new.issue(), new.pem)
        assert {name for name, _ in await asyncio.gather(*under_way)} == {"before"}
        stopped.set()
        for names in await asyncio.gather(*going_on):
            assert names[0] == "before"
            assert names[-1] == "after"


async def test_a_certificate_that_is_not_accepted_yet_waits(tmp_path: Path, authority: Authority) -> None:
    other = Authority("another")
    server = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", authority.issue("before"), authority.pem)
    async with serving(server) as served, reloading(served.port, client) as channel:
        await until_known_as(channel, "before")
        write(tmp_path / "client", other.issue("after"), authority.pem)
        for _ in range(10):
            assert (await who(channel, 0.02))[0] == "before"
        write(tmp_path / "server", None, authority.pem + other.pem)
        await until_known_as(channel, "after")


async def test_a_client_that_is_refused_comes_in_with_new_files(tmp_path: Path, authority: Authority) -> None:
    server = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", Authority("another").issue(), authority.pem)
    async with serving(server) as served, reloading(served.port, client) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await who(channel)
        ready = asyncio.create_task(channel.channel_ready())
        await asyncio.sleep(0.05)
        assert not ready.done()
        write(tmp_path / "client", authority.issue("after"), authority.pem)
        await asyncio.sleep(0.02)
        assert (await who(channel))[0] == "after", "at the first attempt"
        async with asyncio.timeout(5):
            await ready


async def test_a_stream_survives_new_files_on_both_sides(tmp_path: Path, authority: Authority) -> None:
    server = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", authority.issue("before"), authority.pem)
    async with serving(server) as served, reloading(served.port, client) as channel:
        stream = channel.unary_stream("/tls.Test/Ticks")(b"60", timeout=10)
        answers = aiter(stream)
        callers = {await anext(answers)}
        talk = channel.stream_stream("/tls.Test/Echo")(timeout=10)
        await talk.write(b"one")
        assert await talk.read() == b"one"
        write(tmp_path / "server", authority.issue(), authority.pem)
        write(tmp_path / "client", authority.issue("after"), authority.pem)
        await until_known_as(channel, "after")
        rest = [message async for message in answers]
        assert len(rest) == 59
        assert len(callers | set(rest)) == 1, "on one connection from the first message to the last"
        await talk.write(b"two")
        assert await talk.read() == b"two"
        await talk.done_writing()
        assert await talk.read() is grpc.aio.EOF
        assert await channel.stream_unary("/tls.Test/Joined")(iter((b"a", b"b")), timeout=5) == b"ab"


async def test_who_watches_the_channel_hears_of_a_change_while_the_old_one_is_busy(
    tmp_path: Path, authority: Authority
) -> None:
    files = write(tmp_path, authority.issue("before"), authority.pem)
    async with serving(files) as served, reloading(served.port, files) as channel:
        await until_known_as(channel, "before")
        busy = asyncio.create_task(who(channel, 0.3))
        watching = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        await asyncio.sleep(0.02)
        assert not watching.done()
        write(tmp_path, authority.issue("after"), authority.pem)
        await until_known_as(channel, "after")
        await watching
        assert not busy.done()
        assert (await busy)[0] == "before"


async def test_channels_of_the_past_are_closed(tmp_path: Path, authority: Authority) -> None:
    server = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", authority.issue("0"), authority.pem)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def closed() -> bool:
        return descriptors() <= before

    async with serving(server) as served, reloading(served.port, client) as channel:
        await until_known_as(channel, "0")
        before = descriptors()
        for turn in range(1, 21):
            write(tmp_path / "client", authority.issue(str(turn)), authority.pem)
            await until_known_as(channel, str(turn))
        await until(closed)
        assert len(set(served.peers)) == 21, "each had a connection of its own"


async def test_a_call_that_an_interceptor_holds_back_still_finds_its_channel(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path, authority.issue("before"), authority.pem)
    held = HeldBack()
    async with serving(files) as served, ReloadingChannel(f"localhost:{served.port}", files, QUICK, [held]) as channel:
        await until_known_as(channel, "before")
        held.go.clear()
        calls = [asyncio.create_task(who(channel)) for _ in range(3)]
        await asyncio.sleep(0.02)
        write(tmp_path, authority.issue("after"), authority.pem)
        stream = channel.unary_stream("/tls.Test/Ticks")

        async def switched() -> bool:
            return all([message.startswith(b"after") async for message in stream(b"1")])

        await until(switched)
        held.go.set()
        assert {name for name, _ in await asyncio.gather(*calls)} == {"before"}


async def test_closing_gives_calls_their_grace(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path, authority.issue("before"), authority.pem)
    async with serving(files) as served:
        channel = reloading(served.port, files)
        await until_known_as(channel, "before")
        calls = [asyncio.create_task(who(channel, 0.2))]
        await asyncio.sleep(0.02)
        write(tmp_path, authority.issue("after"), authority.pem)
        await until_known_as(channel, "after")
        calls.append(asyncio.create_task(who(channel, 0.2)))
        await asyncio.sleep(0.02)
        await channel.close(grace=5)
        assert [name for name, _ in await asyncio.gather(*calls)] == ["before", "after"]
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        for use in (who, ReloadingChannel.channel_ready):
            with pytest.raises(grpc.aio.UsageError):
                await use(channel)


async def test_replicas_take_turns_and_calls_are_tried_again(tmp_path: Path, authority: Authority) -> None:
    server = write(tmp_path / "server", authority.issue(), authority.pem)
    client = write(tmp_path / "client", authority.issue("before"), authority.pem)
    retry = {"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1}
    policy = {"name": [{}], "retryPolicy": {**retry, "retryableStatusCodes": ["UNAVAILABLE"]}}
    balance = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
    options = [*QUICK, ("grpc.service_config", json.dumps({**balance, "methodConfig": [policy]}))]
    async with serving(server) as one, serving(server) as two:
        target = f"ipv4:127.0.0.1:{one.port},127.0.0.1:{two.port}"
        async with ReloadingChannel(target, client, options) as channel:
            await until_known_as(channel, "before")
            write(tmp_path / "client", authority.issue("after"), authority.pem)
            await until_known_as(channel, "after")

            async def both() -> bool:
                return len({(await who(channel))[1] for _ in range(4)}) == 2

            async def one_only() -> bool:
                return len({(await who(channel))[1] for _ in range(6)}) == 1

            await until(both)
            one.unavailable = two.unavailable = 1
            await who(channel)
            assert one.unavailable == two.unavailable == 0
            await one.checks.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            await until(one_only)


async def test_grpcurl_speaks_to_it(tmp_path: Path, authority: Authority) -> None:
    files = write(tmp_path, authority.issue(), authority.pem)
    shows = ("-cert", str(files.cert), "-key", str(files.key))
    proto = ("-import-path", str(tmp_path), "-proto", "health.proto")
    (tmp_path / "health.proto").write_text(
        'syntax = "proto3"; package grpc.health.v1; message Q {} message A { int32 status = 1; }'
        "service Health { rpc Check(Q) returns (A); }"
    )
    async with serving(files) as served:
        for arguments, code in ((shows, 0), ((), 1)):
            process = await asyncio.create_subprocess_exec(
                GRPCURL, "-connect-timeout", "0.7", "-cacert", str(files.ca), *arguments, *proto,
                f"localhost:{served.port}", "grpc.health.v1.Health/Check",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            printed, _ = await asyncio.wait_for(process.communicate(), 10)
            assert (process.returncode == 0) is (code == 0), printed
            assert (b'"status": 1' in printed) is (code == 0)
