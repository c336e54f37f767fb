"""Hostile requests over every RPC of four real processes: none is answered with INTERNAL or UNKNOWN, nothing ends or leaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.harness import hostile
from tests.harness.hostile import Attack, Attacker, Method
from tests.harness.hostile_checks import Besieged, Footprint, drop_connections
from tests.harness.hostile_wire import tagged
from tests.harness.suite import Background, eventually, running_suite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("hostile")]
_REQUESTS = 500
# As many as are counted: with fewer, some kinds of large messages come for the first time while growth is measured.
_WARM_UP = 500
_SECONDS = 60.0
_MEGABYTES = 200


@pytest.fixture(scope="module")
def besieged(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """A suite of its own, with the secret document in it."""
    with running_suite(background, tmp_path_factory.mktemp("hostile")) as suite:
        under_attack = Besieged(suite)
        under_attack.seed()
        # The first calls load models and fill pools.
        under_attack.ordinary_seconds()
        yield under_attack


def test_every_rpc_of_every_service_is_attacked() -> None:
    """The methods come from the descriptors: a service or an RPC more is attacked without a change here."""
    paths = {method.path for method in hostile.methods() if method.request is not None}
    rpcs = {
        f"/{service.full_name}/{rpc.name}"
        for file in hostile.FILES.values()
        for service in file.DESCRIPTOR.services_by_name.values()
        for rpc in service.methods
    }
    assert len(rpcs) >= 21
    assert rpcs < paths
    attacker = Attacker(seed=1, heavy=0)
    attacked = {attacker.attack().method.path for _ in range(_REQUESTS)}
    assert rpcs <= attacked


def test_hostile_requests_find_no_way_in(besieged: Besieged) -> None:
    attacker = Attacker(seed=20261130, heavy=0.02)
    # What messages of megabytes take once, the allocator keeps for the next ones.
    besieged.attack([attacker.attack() for _ in range(_WARM_UP)], at_once=16, seconds=_SECONDS)
    before = besieged.footprints()
    besieged.attack([attacker.attack() for _ in range(_REQUESTS)], at_once=16, seconds=_SECONDS)
    assert besieged.tally.faults == []
    assert besieged.crashed() == []
    # Each kind of request was there, and the contract's bounds did their work.
    assert len(besieged.tally.families) >= 10
    assert besieged.tally.statuses["INVALID_ARGUMENT"] > _REQUESTS / 3
    assert besieged.ordinary_seconds() < 10
    eventually(lambda: all(one.in_flight == 0 for one in besieged.footprints().values()), 15, "no call is left")
    after = besieged.footprints()
    grown = {name: round(after[name].resident_mb - before[name].resident_mb) for name in after}
    assert max(grown.values()) < _MEGABYTES, grown
    eventually(lambda: _closed(besieged, before), 15, "files are closed")
    besieged.read_log()
    assert besieged.tally.faults == []


def test_what_is_no_message_is_the_fault_of_its_sender(besieged: Besieged) -> None:
    """grpcio itself would answer UNKNOWN with the text of its exception."""
    besieged.tally.statuses.clear()
    junk = [
        Attack("junk", method, (b"\xff\xff\xff",), timeout=5.0) for method in hostile.methods() if method.request is not None
    ]
    besieged.attack(junk, at_once=8, seconds=30)
    assert dict(besieged.tally.statuses) == {"INVALID_ARGUMENT": len(junk)}
    assert besieged.tally.faults == []


@pytest.mark.parametrize(
    "name", ["GradeAnswer", "CheckClaims", "ReviewDraft", "RefineAnswer", "ReviseDraft", "Ask", "Compose", "Search"]
)
def test_millions_of_empty_items_are_refused_before_they_are_copied(besieged: Besieged, name: str) -> None:
    """Eight megabytes of empty passages took a minute and five gigabytes when each became a dictionary first."""
    method = _method(name)
    repeated = [field for field in method.request.fields if field.is_repeated and field.message_type is not None]
    crowds = [tagged(field.number, 2, b"") * 2_000_000 for field in repeated]
    if "filter" in method.request.fields_by_name:
        crowds.append(tagged(method.request.fields_by_name["filter"].number, 2, tagged(1, 2, tagged(1, 2, b"") * 2_000_000)))
    assert crowds
    besieged.tally.statuses.clear()
    besieged.holds.clear()
    for crowd in crowds:
        besieged.attack([Attack("crowd", method, (crowd,), timeout=20.0)], at_once=1, seconds=30)
    assert dict(besieged.tally.statuses) == {"INVALID_ARGUMENT": len(crowds)}
    # Reading the message itself takes a third of a second.
    assert besieged.holds[method.service] < 5


def test_what_was_refused_is_let_go(besieged: Besieged) -> None:
    """The frames of an error held each refused request until the collector came: sixteen of them were five gigabytes."""
    method = _method("GradeAnswer")
    crowd = tagged(method.request.fields_by_name["passages"].number, 2, b"") * 2_000_000
    refused = [Attack("crowd", method, (crowd,), timeout=20.0)] * 10
    before = besieged.footprints()["judge"].resident_mb
    besieged.attack(refused, at_once=2, seconds=60)
    assert besieged.tally.faults == []
    # A message of this kind takes 270 MB while it is read.
    assert besieged.footprints()["judge"].resident_mb - before < 900


def test_connections_that_come_and_go_leave_nothing(besieged: Besieged) -> None:
    before = besieged.footprints()
    for place, name in enumerate(before):
        drop_connections(besieged.suite.target(name), 250, seed=place)
    assert besieged.crashed() == []
    eventually(lambda: _closed(besieged, before), 20, "files are closed")
    besieged.read_log()
    assert besieged.tally.faults == []


def _method(name: str) -> Method:
    return next(method for method in hostile.methods() if method.path.endswith(f"/{name}"))


def _closed(besieged: Besieged, before: Mapping[str, Footprint]) -> bool:
    return all(one.files <= before[name].files + 8 for name, one in besieged.footprints().items())
