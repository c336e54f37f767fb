"""Credentials stay where they belong: out of the open, out of texts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from errata_client import ApiKey, BearerToken, ErrataClient, Named, Targets, Tls
from errata_client.credentials import is_loopback


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:50051",
        "127.3.2.1:50051",
        "localhost:50051",
        "localhost",
        "[::1]:50051",
        "dns:///localhost:50051",
        "dns:localhost:50051",
        "ipv4:127.0.0.1:1,127.0.0.2:2",
        "ipv6:[::1]:50051",
        "unix:///run/errata.sock",
        "unix:errata.sock",
    ],
)
def test_loopback_is_known(target: str) -> None:
    assert is_loopback(target)
    ErrataClient(target, credentials=ApiKey("k"))


@pytest.mark.parametrize(
    "target",
    [
        "10.0.0.1:50051",
        "errata:50051",
        "dns:///errata-orchestrator:50051",
        "localhost.example.com:50051",
        "127.0.0.1.example.com:50051",
        "ipv4:127.0.0.1:1,10.0.0.2:2",
        "[2001:db8::1]:50051",
        "0.0.0.0:50051",
        "dns://10.0.0.1/localhost:50051",
    ],
)
def test_credentials_do_not_leave_the_machine_in_the_open(target: str) -> None:
    assert not is_loopback(target)
    with pytest.raises(ValueError, match="unencrypted"):
        ErrataClient(target, credentials=ApiKey("k"))
    with pytest.raises(ValueError, match="unencrypted"):
        ErrataClient(Targets(judge=target), credentials=ApiKey("k"))
    ErrataClient(target)
    ErrataClient(target, credentials=ApiKey("k"), tls=Tls(ca=Path("ca.pem")))
    ErrataClient(target, credentials=ApiKey("k"), plaintext=True)


async def test_each_kind_is_a_bearer() -> None:
    async def fetched() -> str:
        return "c"

    kinds: list[tuple[ApiKey | BearerToken, str]] = [
        (ApiKey("a"), "a"),
        (BearerToken("b"), "b"),
        (BearerToken(fetched), "c"),
        (BearerToken(lambda: "d"), "d"),
    ]
    for credentials, expected in kinds:
        assert await credentials.metadata() == (("authorization", f"Bearer {expected}"),)


async def test_a_name_is_no_secret() -> None:
    assert await Named("ann").metadata() == (("errata-principal", "ann"),)
    ErrataClient("errata:50051", credentials=Named("ann"))


@pytest.mark.parametrize("make", [ApiKey, BearerToken])
def test_no_secret_is_in_a_repr(make: Callable[[str], object]) -> None:
    assert "s3cret" not in repr(make("s3cret"))


async def test_a_client_is_used_inside_its_block_and_for_what_it_knows() -> None:
    client = ErrataClient("127.0.0.1:1")
    with pytest.raises(RuntimeError, match="outside"):
        client.watch_run("x")
    async with client:
        with pytest.raises(ValueError, match=r"where the judge is: give it Targets\(judge="):
            _ = client.judge
