"""What is cut out with a unit, and what stays: blanks, markers, blank lines, table heads."""

import pytest

from errata_kit.text.sentences import split_sentences
from services.generator.drafting.removal import cuts, made, orphans


def without(text: str, *words: str) -> str:
    units = split_sentences(text)
    gone = {place for place, unit in enumerate(units) if any(word in unit.text for word in words)}
    assert gone
    return made(text, cuts(text, units, gone | orphans(text, units, gone)))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("One. BAD. Two.", "One. Two."),
        ("BAD. One.", "One."),
        ("One.  BAD.\n", "One.\n"),
        ("BAD.", ""),
        (" BAD one. BAD two.\n\n", ""),
        ("One.\nBAD.\nTwo.", "One.\nTwo."),
        ("One.\n\nBAD one.\n\nBAD two. Two.", "One.\n\nTwo."),
        ("One. BAD.\n\nBAD.\n\nBAD. Two.", "One.\n\nTwo."),
        ("One.\n\nBAD.\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\n\n\nBAD.\n\n\nTwo.\n\n\n\nThree.", "One.\n\n\n\nTwo.\n\n\n\nThree."),
        ("BAD.\n\nTwo.", "Two."),
        ("One.\n\nBAD.\n", "One.\n"),
        ("One.\r\n\r\nBAD.\r\n\r\nTwo.\r\n", "One.\r\n\r\nTwo.\r\n"),
        ("- One.\n- BAD.\n- Two.\n", "- One.\n- Two.\n"),
        ("- One. BAD.\n- Two.", "- One.\n- Two."),
        ("- BAD. One.\n- Two.", "- One.\n- Two."),
        ("1. One.\n2. BAD.\n\nTwo.", "1. One.\n\nTwo."),
        ("A lead:\n\n- BAD.\n- Two.", "A lead:\n\n- Two."),
        ("A lead:\n\n- BAD.\n- BAD.\n\nTwo.", "Two."),
        ("One. A lead:\n\n- BAD.\n\nTwo.", "One.\n\nTwo."),
        ("Words\n## BAD\nmore words", "Words\n\nmore words"),
        ("- item\n| BAD |\nmore words", "- item\n\nmore words"),
        ("## Head\n\nBAD.\n\n## Next\n\nTwo.", "## Next\n\nTwo."),
        ("## Head\n\n### Below\n\nBAD.", ""),
        ("## Head\n\n### Below\n\nBAD.\n\n### More\n\nTwo.", "## Head\n\n### More\n\nTwo."),
        ("Run:\n\n```\nBAD\n```\n\nTwo.", "Two."),
        ("One.\n\n```\nBAD", "One."),
        ("| a |\n|---|\n| BAD |\n| two |", "| a |\n|---|\n| two |"),
        ("Rows:\n\n| a |\n|---|\n| BAD |\n| two |", "Rows:\n\n| a |\n|---|\n| two |"),
        ("| BAD | b |\n|---|---|\n| one | two |", "|  |  |\n|---|---|\n| one | two |"),
        ("One.\n\n| BAD |\n|---|\n| BAD |\n\nTwo.", "One.\n\nTwo."),
    ],
)
def test_what_goes_takes_what_is_its_own_along(text: str, left: str) -> None:
    assert without(text, "BAD") == left


def test_each_unit_that_goes_has_its_own_change() -> None:
    text = "One. BAD one. BAD two.\n\n- BAD three.\n- Two."
    units = split_sentences(text)
    found = cuts(text, units, {1, 2, 3})
    assert [(change.place, text[change.start : change.end]) for change in found] == [
        (1, " BAD one. "),
        (2, "BAD two."),
        (3, "- BAD three.\n"),
    ]
