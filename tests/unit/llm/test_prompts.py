"""Prompt files, placeholders and fences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.llm.prompts import PromptError, PromptLibrary, fence, new_nonce, nonce_for, parse_prompt
from tests.harness.model_responder import material_of
from tests.harness.model_rules import ChatRequest, Message

TEXT = "# System\nYou judge.\n\n# User\nQuestion: ${question}\nCosts $5, $${question}.\n"
ROOT = Path(__file__).parents[3]
NONCE = "00ff00ff00ff00ff"


def test_a_prompt_has_two_parts_and_a_version() -> None:
    prompt = parse_prompt("grade", TEXT)
    assert prompt.system == "You judge." and prompt.placeholders == {"question"}
    assert len(prompt.version) == 12 and int(prompt.version, 16) >= 0
    assert parse_prompt("other", TEXT.replace("\n", "\r\n")).version == prompt.version
    assert parse_prompt("grade", TEXT + ".").version != prompt.version


def test_values_are_not_expanded_again() -> None:
    rendered = parse_prompt("grade", TEXT).render({"question": "${question} \\1 $x"})
    assert rendered.user.startswith("Question: ${question} \\1 $x\nCosts $5, $")
    assert (rendered.name, rendered.system) == ("grade", "You judge.")


@pytest.mark.parametrize("values", [{}, {"question": "x", "more": "y"}, {"other": "x"}])
def test_the_names_must_be_the_placeholders(values: dict[str, str]) -> None:
    with pytest.raises(PromptError, match="grade"):
        parse_prompt("grade", TEXT).render(values)


@pytest.mark.parametrize(
    "text",
    ["", "# System\nx\n", "# User\nx\n# System\ny\n", "# System\n\n# User\nx\n", TEXT + "# User\nagain\n"],
)
def test_a_malformed_prompt_is_refused(text: str) -> None:
    with pytest.raises(PromptError):
        parse_prompt("bad", text)


def test_a_library_reads_the_folder_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "prompted_service" / "prompts"
    folder.mkdir(parents=True)
    (tmp_path / "prompted_service" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PromptError, match="no prompts"):
        PromptLibrary.load("prompted_service")
    (folder / "grade.md").write_text(TEXT, encoding="utf-8")
    (folder / "notes.txt").write_text("not a prompt", encoding="utf-8")
    library = PromptLibrary.load("prompted_service")
    assert library.versions == {"grade": library["grade"].version}
    with pytest.raises(PromptError, match="grade"):
        library["missing"]
    sys.modules.pop("prompted_service", None)


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000


TEXTS = st.lists(st.text(max_size=20), max_size=4).map(tuple)


@given(TEXTS, TEXTS)
def test_equal_material_has_equal_nonces_and_other_material_has_others(some: tuple[str, ...], others: tuple[str, ...]) -> None:
    nonce = nonce_for(*some)
    assert len(nonce) == 16 and int(nonce, 16) >= 0
    assert (nonce_for(*others) == nonce) is (some == others)
    assert fence("passage 1", "text", nonce).endswith(f"{nonce}>>>")


def test_where_one_text_ends_and_the_next_begins_makes_a_difference() -> None:
    assert len({nonce_for("ab", "c"), nonce_for("a", "bc"), nonce_for("abc"), nonce_for("abc", "")}) == 4
    assert nonce_for("half a pair: \ud800") != nonce_for("half a pair: ")


def test_another_process_has_other_nonces() -> None:
    """What one process gives away opens no fence of another; so the key is not in the program."""
    program = "from errata_kit.llm.prompts import nonce_for; print(nonce_for('a', 'b'))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, cwd=ROOT)
    assert len(run.stdout.strip()) == 16 and run.stdout.strip() != nonce_for("a", "b")


@pytest.mark.parametrize("label", ["", "a>>>", "a | b", "a\nb", "x" * 129])
def test_a_label_cannot_break_a_fence(label: str) -> None:
    with pytest.raises(PromptError):
        fence(label, "text", NONCE)
    with pytest.raises(PromptError):
        fence("passage 1", "text", "short")


@given(st.lists(st.sampled_from([NONCE, NONCE[:5], NONCE[5:], NONCE.upper(), "\n<<<end passage 1 | ", ">>>", "x"])))
def test_text_cannot_close_its_fence(parts: list[str]) -> None:
    fenced = fence("passage 1", "".join(parts), NONCE)
    first, *body, last = fenced.split("\n")
    assert (first, last) == (f"<<<passage 1 | {NONCE}>>>", f"<<<end passage 1 | {NONCE}>>>")
    assert NONCE not in "\n".join(body).lower()


def test_the_double_reads_these_fences() -> None:
    text = fence("passage 7", "It\nsays so.", NONCE) + "\n" + fence("question", "Does it?", NONCE)
    material = material_of(ChatRequest("m", (Message("user", text),)))
    assert material.passages == (("7", "It\nsays so."),) and material.question == "Does it?"
