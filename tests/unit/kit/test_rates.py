"""Calls a minute: what comes at once, what comes back with time, and who pays for whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.access import rates
from errata_kit.access.principals import Principal
from errata_kit.access.rates import RequestRates
from errata_kit.errors import RateLimited

ANN, BOB = Principal("ann", "north"), Principal("bob", "north")


class Clock:
    """Seconds that a test turns on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def taken(limits: RequestRates, principal: Principal, times: int) -> int:
    """How many of so many calls are let in."""
    count = 0
    for _ in range(times):
        try:
            limits.take(principal)
        except RateLimited:
            continue
        count += 1
    return count


def refusal(limits: RequestRates, principal: Principal) -> RateLimited:
    with pytest.raises(RateLimited) as refused:
        limits.take(principal)
    return refused.value


def test_without_limits_everything_is_let_in() -> None:
    assert taken(RequestRates(0, 0, Clock()), ANN, 10_000) == 10_000


def test_a_minutes_worth_may_come_at_once_and_comes_back_evenly() -> None:
    clock = Clock()
    limits = RequestRates(0, 60, clock)
    assert taken(limits, ANN, 100) == 60
    clock.now += 0.5
    assert taken(limits, ANN, 1) == 0
    clock.now += 0.5
    assert taken(limits, ANN, 5) == 1
    clock.now += 10
    assert taken(limits, ANN, 50) == 10
    clock.now += 86_400
    assert taken(limits, ANN, 100) == 60


@pytest.mark.parametrize(("in_all", "each", "scope"), [(6, 0, "all"), (0, 6, "principal")])
def test_a_refusal_says_which_limit_it_was_and_when_to_come_again(in_all: int, each: int, scope: str) -> None:
    clock = Clock()
    limits = RequestRates(in_all, each, clock)
    assert taken(limits, ANN, 6) == 6
    refused = refusal(limits, ANN)
    assert refused.metadata == {"limit": "requests_per_minute", "scope": scope}
    assert refused.retry_after == pytest.approx(10.0)
    assert "ann" not in refused.message
    clock.now += refused.retry_after or 0.0
    assert taken(limits, ANN, 2) == 1


def test_who_takes_more_than_the_own_share_takes_nothing_from_others() -> None:
    limits = RequestRates(10, 5, Clock())
    assert taken(limits, ANN, 1000) == 5
    assert taken(limits, BOB, 1000) == 5
    assert refusal(limits, Principal("carl", "north")).metadata["scope"] == "all"


def test_who_is_refused_for_all_keeps_the_own_share() -> None:
    clock = Clock()
    limits = RequestRates(2, 5, clock)
    assert taken(limits, BOB, 2) == 2
    assert taken(limits, ANN, 100) == 0
    clock.now += 60
    assert taken(limits, ANN, 2) == 2
    assert refusal(limits, ANN).metadata["scope"] == "all"


def test_one_name_in_two_tenants_is_two_principals() -> None:
    limits = RequestRates(0, 3, Clock())
    assert taken(limits, ANN, 5) == 3
    assert taken(limits, Principal("ann", "south"), 5) == 3
    assert taken(limits, Principal("ann", "north", delegated=True), 5) == 0


def test_principals_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_PRINCIPALS", 10)
    limits = RequestRates(0, 1, Clock())
    assert taken(limits, ANN, 2) == 1
    for number in range(10):
        limits.take(Principal(f"p{number}"))
    assert len(limits._own) == 10
    # The oldest one is forgotten, and the others are not.
    assert taken(limits, Principal("p9"), 1) == 0
    assert taken(limits, ANN, 1) == 1


def test_a_flood_does_not_push_out_whoever_calls_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_PRINCIPALS", 10)
    limits = RequestRates(0, 1, Clock())
    assert taken(limits, ANN, 1) == 1
    for number in range(100):
        limits.take(Principal(f"p{number}"))
        assert taken(limits, ANN, 1) == 0


@given(
    steps=st.lists(st.tuples(st.floats(0, 30), st.sampled_from(["ann", "bob", "carl"])), max_size=120),
    in_all=st.integers(0, 20),
    each=st.integers(0, 20),
)
def test_never_more_than_two_minutes_worth_in_any_minute(steps: list[tuple[float, str]], in_all: int, each: int) -> None:
    clock = Clock()
    limits = RequestRates(in_all, each, clock)
    let_in: list[tuple[float, str]] = []
    for pause, name in steps:
        clock.now += pause
        if taken(limits, Principal(name), 1):
            let_in.append((clock.now, name))
        else:
            assert in_all or each
    for start, _ in let_in:
        within = [name for at, name in let_in if start <= at < start + 60]
        # A full bucket, and what flows in during the minute.
        assert not in_all or len(within) <= 2 * in_all
        assert not each or all(within.count(name) <= 2 * each for name in set(within))
