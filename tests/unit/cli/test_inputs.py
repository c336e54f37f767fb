"""What stands on the command line as values, and what is no value."""

import datetime

import pytest

from errata_cli.inputs import criterion, metadata_of, micros, moment
from errata_cli.terminal import UsageError

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "name", "threshold", "description"),
    [
        ("clarity", "clarity", None, ""),
        ("clarity=0.9", "clarity", 0.9, ""),
        ("tone:Friendly, a = b: and so on", "tone", None, "Friendly, a = b: and so on"),
        ("tone=0:Friendly", "tone", 0.0, "Friendly"),
        ("tone=0.7: Two\nlines ", "tone", 0.7, "Two\nlines"),
    ],
)
def test_a_criterion(text: str, name: str, threshold: float | None, description: str) -> None:
    parsed = criterion(text)
    assert (parsed.name, parsed.description) == (name, description)
    assert (parsed.threshold if parsed.HasField("threshold") else None) == threshold


@pytest.mark.parametrize("text", ["", "=0.5", ":what", "clarity=high", "clarity="])
def test_no_criterion(text: str) -> None:
    with pytest.raises(UsageError, match="--criterion"):
        criterion(text)


@pytest.mark.parametrize(("dollars", "cost"), [("0.05", 50_000), ("$1", 1_000_000), ("0.000001", 1), ("2e1", 20_000_000)])
def test_money(dollars: str, cost: int) -> None:
    assert micros(dollars) == cost


@pytest.mark.parametrize("dollars", ["", "much", "0", "-1", "0.0000001", "1.0000005", "NaN", "Infinity", "1e400", "1e99999999"])
def test_no_money(dollars: str) -> None:
    with pytest.raises(UsageError, match="--max-cost"):
        micros(dollars)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - datetime.timedelta(hours=2)),
        ("3d", NOW - datetime.timedelta(days=3)),
        ("90s", NOW - datetime.timedelta(seconds=90)),
        ("2026-11-29T10:00:00Z", datetime.datetime(2026, 11, 29, 10, tzinfo=datetime.UTC)),
        ("2026-11-29T10:00+02:00", datetime.datetime(2026, 11, 29, 8, tzinfo=datetime.UTC)),
        ("2026-11-29", datetime.datetime(2026, 11, 29).astimezone()),
    ],
)
def test_a_time(text: str, expected: datetime.datetime) -> None:
    assert moment(text, "--since", NOW) == expected


def test_no_time_is_none() -> None:
    assert moment("", "--since", NOW) is None


@pytest.mark.parametrize("text", ["yesterday", "2x", "-2h", "999999w", "0001-01-01T00:00+14:00"])
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        moment(text, "--since", NOW)


def test_a_principal_is_what_metadata_can_carry() -> None:
    assert metadata_of("") == ()
    assert metadata_of("ann@example.org") == (("errata-principal", "ann@example.org"),)
    for name in ("zoë", "a\nb", " ", "x" * 129):
        with pytest.raises(UsageError, match="--as"):
            metadata_of(name)
