"""Keys of an issuer: when they are fetched, how long they are used, and what a flood or an outage does."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from errata_kit.access.fetching import MAX_BYTES, FetchFailed, fetch_json, may_be_fetched
from errata_kit.access.issuer_keys import KEEP_AT_MOST_SECONDS, MAX_WAITING, IssuerKeys, KeysAt
from errata_kit.access.oidc import OidcVerifier
from errata_kit.access.settings import AccessSettings
from errata_kit.errors import NotAuthenticated, ServiceUnavailable
from tests.harness.oidc_issuer import DISCOVERY, KEYS, OidcIssuer, SigningKey

KEEP_SECONDS = 300.0


class Stand:
    """An issuer, and a verifier of its tokens whose clock stands still until it is moved."""

    def __init__(self, issuer: OidcIssuer) -> None:
        self.issuer = issuer
        self.now = 1000.0
        self.keys = IssuerKeys(KeysAt(issuer.url), KEEP_SECONDS, clock=lambda: self.now)
        self.verifier = OidcVerifier(AccessSettings.model_validate(issuer.environment()), keys=self.keys)

    @property
    def fetches(self) -> int:
        return self.issuer.asked[KEYS]

    async def takes(self, token: str) -> bool:
        try:
            return (await self.verifier.principal_of(token)).name == "ann"
        except NotAuthenticated:
            return False

    async def settle(self) -> None:
        """Wait for a fetch in the background."""
        for _ in range(200):
            await asyncio.sleep(0.005)
            if self.keys._task is None or self.keys._task.done():
                return
        raise AssertionError("the fetch does not end")


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with OidcIssuer() as issuer:
        made = Stand(issuer)
        yield made
        await made.verifier.aclose()


async def test_many_callers_at_once_cause_one_fetch(stand: Stand) -> None:
    stand.issuer.delay = 0.05
    taken = await asyncio.gather(*(stand.takes(stand.issuer.token(jti=str(number))) for number in range(50)))
    assert all(taken)
    assert (stand.fetches, stand.issuer.asked[DISCOVERY]) == (1, 1)


async def test_a_caller_that_gives_up_does_not_end_the_fetch_for_others(stand: Stand) -> None:
    stand.issuer.delay = 0.05
    hasty = asyncio.create_task(stand.takes(stand.issuer.token()))
    patient = asyncio.create_task(stand.takes(stand.issuer.token()))
    await asyncio.sleep(0.02)
    hasty.cancel()
    assert await patient
    with contextlib.suppress(asyncio.CancelledError):
        await hasty


async def test_a_new_key_is_found_after_a_rotation(stand: Stand) -> None:
    old = stand.issuer.token()
    assert await stand.takes(old)
    stand.now += 11
    stand.issuer.rotate("second", keep_old=True)
    assert await stand.takes(stand.issuer.token())
    assert await stand.takes(old)
    assert stand.fetches == 2


async def test_a_key_that_was_taken_back_ends_the_tokens_that_it_signed(stand: Stand) -> None:
    old = stand.issuer.token()
    assert await stand.takes(old)
    stand.issuer.rotate("second")
    stand.now += KEEP_SECONDS * 0.9
    assert await stand.takes(old), "the keys are read in the background"
    await stand.settle()
    assert not await stand.takes(old)
    assert stand.verifier.remembered(old) is None


async def test_keys_that_are_too_old_are_not_used_before_they_are_read_again(stand: Stand) -> None:
    old = stand.issuer.token()
    assert await stand.takes(old)
    stand.issuer.rotate("second")
    stand.now += KEEP_SECONDS + 1
    assert not await stand.takes(old)


async def test_tokens_with_unknown_keys_cannot_hammer_the_issuer(stand: Stand) -> None:
    stranger = SigningKey("x")
    assert await stand.takes(stand.issuer.token())
    for second in range(60):
        stand.now += 1
        forged = [stranger.sign(stand.issuer.claims(), {"kid": f"{second}-{number}"}) for number in range(20)]
        assert not any(await asyncio.gather(*map(stand.takes, forged)))
        assert await stand.takes(stand.issuer.token(jti=str(second)))
    assert 2 <= stand.fetches <= 1 + 6


async def test_a_slow_issuer_does_not_let_made_up_keys_hold_many_calls(stand: Stand) -> None:
    assert await stand.takes(stand.issuer.token())
    stand.now += 11
    stand.issuer.delay = 0.1
    forged = [SigningKey("x").sign(stand.issuer.claims(), {"kid": str(number)}) for number in range(200)]
    waiting = [asyncio.create_task(stand.verifier.principal_of(token)) for token in forged]
    done, pending = await asyncio.wait(waiting, timeout=0.05)
    assert len(pending) == MAX_WAITING
    assert all(isinstance(task.exception(), ServiceUnavailable) for task in done)
    assert await stand.takes(stand.issuer.token())
    await asyncio.wait(pending)
    assert all(isinstance(task.exception(), NotAuthenticated) for task in pending)


async def test_while_the_issuer_is_away_known_keys_serve_for_a_day(stand: Stand) -> None:
    token = stand.issuer.token(exp=2**40)
    assert await stand.takes(token)
    await stand.issuer.stop()
    stand.now += KEEP_SECONDS + 1
    assert await stand.takes(token)
    assert await stand.takes(stand.issuer.token(exp=2**40, jti="not seen before"))
    stand.now += KEEP_AT_MOST_SECONDS / 2
    assert await stand.takes(token)
    await stand.settle()
    stand.now += KEEP_AT_MOST_SECONDS / 2
    with pytest.raises(ServiceUnavailable):
        await stand.verifier.principal_of(token)
    await stand.issuer.start()
    stand.now += 10
    assert await stand.takes(token)


async def test_an_unknown_key_while_the_issuer_is_away_is_no_verdict_on_the_caller(stand: Stand) -> None:
    assert await stand.takes(stand.issuer.token())
    await stand.issuer.stop()
    stand.issuer.rotate("second")
    stand.now += 11
    for _ in range(3):
        with pytest.raises(ServiceUnavailable) as caught:
            await stand.verifier.principal_of(stand.issuer.token())
        assert caught.value.metadata == {"service": "oidc"}
        assert caught.value.retry_after == pytest.approx(10, abs=0.5)
    await stand.issuer.start()
    stand.now += 11
    assert await stand.takes(stand.issuer.token())


async def test_an_issuer_that_was_never_reached_is_asked_every_ten_seconds(stand: Stand) -> None:
    stand.issuer.replies[DISCOVERY] = (503, b"")
    for _ in range(30):
        with pytest.raises(ServiceUnavailable):
            await stand.verifier.ready()
        stand.now += 1
    assert stand.issuer.asked[DISCOVERY] == 3
    stand.issuer.replies.clear()
    await stand.verifier.ready()
    assert await stand.takes(stand.issuer.token())


GOOD = json.dumps({"keys": [SigningKey("first").jwk]}).encode()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (KEYS, 500, GOOD),
        (KEYS, 302, GOOD),
        (KEYS, 200, b"not JSON"),
        (KEYS, 200, b"[]"),
        (KEYS, 200, b'{"keys": []}'),
        (KEYS, 200, b"[" * 100_000),
        (KEYS, 200, GOOD + b" " * MAX_BYTES),
    ],
)
async def test_a_wrong_document_is_a_failed_fetch(stand: Stand, path: str, status: int, body: bytes) -> None:
    stand.issuer.replies[path] = (status, body)
    with pytest.raises(ServiceUnavailable):
        await stand.verifier.ready()
    assert stand.fetches == 1
    stand.issuer.replies[path] = (200, GOOD)
    stand.now += 10
    await stand.verifier.ready()


async def test_a_discovery_document_must_be_the_issuers_own(stand: Stand) -> None:
    there = {"issuer": stand.issuer.url + "/", "jwks_uri": stand.issuer.url + KEYS}
    stand.issuer.replies[DISCOVERY] = (200, json.dumps(there).encode())
    with pytest.raises(ServiceUnavailable):
        await stand.verifier.ready()
    assert stand.fetches == 0


async def test_a_discovery_document_may_not_lead_to_plain_http_elsewhere(stand: Stand) -> None:
    for target in ("http://keys.example/k", "file:///k", 7):
        stand.issuer.replies[DISCOVERY] = (200, json.dumps({"issuer": stand.issuer.url, "jwks_uri": target}).encode())
        with pytest.raises(ServiceUnavailable):
            await stand.verifier.ready()
        stand.now += 10
    assert stand.issuer.asked[DISCOVERY] == 3


async def test_a_defect_in_the_fetch_does_not_make_old_keys_fresh() -> None:
    def broken(_: KeysAt) -> tuple[()]:
        raise RuntimeError("secret detail")

    keys = IssuerKeys(KeysAt("https://issuer.example"), KEEP_SECONDS, fetch=broken)
    with pytest.raises(ServiceUnavailable) as caught:
        await keys.ready()
    assert "secret" not in caught.value.message
    await keys.aclose()


async def test_closing_ends_a_fetch_that_is_going_on(stand: Stand) -> None:
    stand.issuer.delay = 0.2
    waiting = asyncio.create_task(stand.verifier.ready())
    await asyncio.sleep(0.02)
    await stand.verifier.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://issuer.example/keys", True),
        ("http://localhost:8080/keys", True),
        ("http://127.0.0.1/keys", True),
        ("http://[::1]:99/keys", True),
        ("http://127.0.0.1.example/keys", False),
        ("http://127.0.0.1@issuer.example/keys", False),
        ("http://10.0.0.1/keys", False),
        ("ftp://127.0.0.1/keys", False),
        ("https:///keys", False),
        ("", False),
    ],
)
async def test_addresses_that_keys_may_come_from(url: str, allowed: bool) -> None:
    assert may_be_fetched(url) is allowed
    if not allowed:
        with pytest.raises(FetchFailed):
            await asyncio.to_thread(fetch_json, url)
