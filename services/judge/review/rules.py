"""Rules that see what is wrong with a draft without a model. They lower scores, whoever gave them, and never raise one."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from errata_kit.drafts import IssueSeverity
from errata_kit.passages import Passage
from errata_kit.text.matching import fold
from errata_kit.text.sentences import Sentence
from errata_kit.text.terms import STOP_WORDS
from services.judge.claims.splitting import plain_text
from services.judge.guard import find_ungrounded
from services.judge.review.coverage import named_nowhere
from services.judge.review.findings import CLARITY, COMPLETENESS, RELEVANCE, TECHNICAL_QUALITY, RuleFinding, listed, shortened
from services.judge.review.reading import Line, Reading, count_words
from services.judge.review.task import Limit, Task

# Each cost alone brings a faultless score of 1 below the default threshold of the criterion that the fault belongs to, unless
# the finding is a blemish.
_PLACEHOLDERS: Final = {COMPLETENESS: 0.30, CLARITY: 0.15, TECHNICAL_QUALITY: 0.10, RELEVANCE: 0.05}
_ANOTHER_PLACEHOLDER: Final = 0.05
_MOST_COUNTED: Final = 6
_CUT_OFF: Final = {COMPLETENESS: 0.35, CLARITY: 0.15, TECHNICAL_QUALITY: 0.05}
_OPEN_FENCE: Final = {TECHNICAL_QUALITY: 0.30, COMPLETENESS: 0.25, CLARITY: 0.15}
_EMPTY_SECTION: Final = {COMPLETENESS: 0.25, CLARITY: 0.10}
_EMPTY_ITEM: Final = {COMPLETENESS: 0.10, CLARITY: 0.05}
_ONE_REPEAT: Final = 0.05
_REPEATED_SHARE: Final = 1.5
_MISSING_POINT: Final = 0.25
_MISSING_CLAUSE: Final = 0.12
_MOST_POINTS_SHOWN: Final = 8
_INVENTED: Final = 0.25
_MOST_DETAILS: Final = 10
_TOO_LONG: Final = 0.12
_TOO_SHORT: Final = 0.25
_MUCH_TOO_SHORT: Final = 0.30
# Sentences of fewer words may well return ("Restart the service."); as may a heading.
_REPEAT_WORDS: Final = 5
_ENDINGS: Final = "\"'”’»)]*_`|>"
_CITATION: Final = re.compile(r"(?:[ \t]{0,3}\[\d{1,3}(?:[ ]?,[ ]?\d{1,3}){0,9}\]){1,20}\Z")
_HANGING: Final = STOP_WORDS - {
    "it",
    "so",
    "too",
    "not",
    "on",
    "off",
    "up",
    "down",
    "out",
    "over",
    "in",
    "above",
    "below",
    "again",
    "yes",
    "no",
}
_ADDRESS: Final = re.compile(r"://|@|\w/\w")
_EMPTY_MARK: Final = re.compile(r"[ \t>]*(?:[-*+•]|\d{1,3}[.)])[ \t]*")
_UNTIL_NEXT: Final = {"text", "item", "table", "code", "fence"}


def findings_of(draft: Reading, task: Task, passages: Sequence[Passage]) -> tuple[RuleFinding, ...]:
    """All findings, in the order of the rules. Deterministic; each rule is linear in the lengths of draft and task."""
    found: list[RuleFinding] = []
    for rule in _RULES:
        found.extend(rule(draft, task))
    if passages:
        found.extend(_invented(draft, task, passages))
    return tuple(found)


def _placeholders(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    if draft.placeholders:
        more = _ANOTHER_PLACEHOLDER * min(len(draft.placeholders) - 1, _MOST_COUNTED)
        yield RuleFinding(
            f"It has a placeholder where text should stand: {listed(list(draft.placeholders))}.",
            f"Write what {listed(list(draft.placeholders))} stands for, or take it out.",
            IssueSeverity.CRITICAL,
            {name: cost + more for name, cost in _PLACEHOLDERS.items()},
            0.25 + more,
            draft.placeholders[0],
        )


def _unfinished(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    if draft.fence_left_open:
        opening = next(line.text for line in reversed(draft.lines) if line.kind == "fence")
        yield RuleFinding(
            "A code block is opened and never closed.",
            "Close the code block.",
            IssueSeverity.CRITICAL,
            _OPEN_FENCE,
            0.10,
            opening.strip(),
        )
    elif why := _cut_off(draft):
        last = draft.units[-1].text
        yield RuleFinding(why, "Finish the last sentence.", IssueSeverity.CRITICAL, _CUT_OFF, 0.25, last)


def _cut_off(draft: Reading) -> str:
    """How the end of the draft shows that it is not its end; "" when it does not."""
    last = draft.units[-1] if draft.units else None
    if last is None or last.kind not in ("prose", "list"):
        return ""
    text = plain_text(_CITATION.sub("", last.text)).rstrip()
    bare = text.rstrip(_ENDINGS)
    if not bare or (text != bare and text[-1] in "`|>") or _ADDRESS.search(text.rsplit(maxsplit=1)[-1]):
        return ""
    word = bare.rsplit(maxsplit=1)[-1]
    if text[-1] in ",;:(-–—/&" or bare.endswith(("...", "…")) or word.lower() in _HANGING:
        return f"It ends in the middle of a sentence: “…{text[-80:]}”."
    # Scripts without capitals end without a full stop, and so do the items of many a list.
    cased = bare[-1].isdigit() or bare[-1].lower() != bare[-1].upper()
    if cased and count_words(text) > _REPEAT_WORDS and (last.kind == "prose" or _items_end(draft)):
        return f"Its last sentence has no end: “…{text[-80:]}”."
    return ""


def _items_end(draft: Reading) -> bool:
    """Whether all list items before the last sentence end like sentences, so that one which does not is cut off."""
    before = [unit.text for unit in draft.units[:-1] if unit.kind == "list"]
    return len(before) > 1 and all(text.rstrip(_ENDINGS).endswith((".", "!", "?")) for text in before)


def _empty_parts(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    bare = [line.text.strip() for line in _bare_headings(draft)]
    if bare:
        more = 0.05 * min(len(bare) - 1, _MOST_COUNTED)
        yield RuleFinding(
            f"Nothing stands below the heading {listed(bare)}.",
            f"Write what belongs below {listed(bare)}, or take the heading out.",
            IssueSeverity.MAJOR,
            {name: cost + more for name, cost in _EMPTY_SECTION.items()},
            0.10,
            bare[0],
        )
    empty = sum(line.kind == "item" and _EMPTY_MARK.fullmatch(line.text) is not None for line in draft.lines)
    if empty:
        more = 0.05 * min(empty - 1, _MOST_COUNTED)
        yield RuleFinding(
            f"A list has {empty} empty item{'s' if empty > 1 else ''}.",
            "Fill the empty items of the list, or take them out.",
            IssueSeverity.MAJOR,
            {name: cost + more for name, cost in _EMPTY_ITEM.items()},
            0.05,
        )


def _bare_headings(draft: Reading) -> Iterator[Line]:
    waiting: Line | None = None
    for line in draft.lines:
        if line.kind == "heading":
            if waiting is not None and line.level <= waiting.level:
                yield waiting
            waiting = line
        elif line.kind in _UNTIL_NEXT:
            waiting = None
    if waiting is not None:
        yield waiting


def _repeats(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    seen: set[str] = set()
    again: list[Sentence] = []
    for unit in draft.sentences:
        key = fold(plain_text(unit.text))
        # What introduces a command may come again with the next command.
        if count_words(key) >= _REPEAT_WORDS and not key.endswith(":"):
            if key in seen:
                again.append(unit)
            seen.add(key)
    if again:
        share = sum(count_words(plain_text(unit.text)) for unit in again) / max(draft.words, 1)
        cost = min(0.6, _ONE_REPEAT * len(again) + _REPEATED_SHARE * share)
        times = f"{len(again)} sentences stand" if len(again) > 1 else "One sentence stands"
        yield RuleFinding(
            f"{times} in it more than once, such as “{shortened(again[0].text)}”.",
            "Say each thing once: take the repeated sentences out.",
            IssueSeverity.MAJOR,
            {CLARITY: cost},
            quote=again[0].text,
        )


def _missing_points(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    for point in named_nowhere(task, draft)[:_MOST_POINTS_SHOWN]:
        yield RuleFinding(
            f"The task asks for “{shortened(point.text)}”, and no word of it occurs in the draft.",
            f"Cover “{shortened(point.text)}”.",
            IssueSeverity.MAJOR,
            {COMPLETENESS: _MISSING_POINT if point.explicit else _MISSING_CLAUSE},
        )


def _length(draft: Reading, task: Task) -> Iterator[RuleFinding]:
    for limit in task.limits:
        yield from _limit(draft, limit)
    size = draft.words + count_words(" ".join(line.text for line in draft.lines if line.kind == "code"))
    if size < task.least_words:
        yield RuleFinding(
            f"It has {size} word{'' if size == 1 else 's'}, much too little for the task.",
            "Write it out in full.",
            IssueSeverity.MAJOR,
            {COMPLETENESS: _MUCH_TOO_SHORT + 0.3 * (1 - size / task.least_words)},
        )


def _limit(draft: Reading, limit: Limit) -> Iterator[RuleFinding]:
    counts = {"word": draft.words, "sentence": len(draft.sentences), "paragraph": draft.paragraphs}
    size = counts[limit.unit]
    said = f"The task says “{limit.wording}”, and the draft has {size} {limit.unit}{'' if size == 1 else 's'}."
    if limit.most is not None and size > limit.most:
        over = (size - limit.most) / max(limit.most, 1)
        cost = min(0.4, _TOO_LONG + 0.2 * over)
        yield RuleFinding(said, f"Shorten it: {limit.wording}.", IssueSeverity.MAJOR, {RELEVANCE: cost})
    elif size < limit.least:
        cost = _TOO_SHORT + 0.3 * (1 - size / limit.least)
        yield RuleFinding(said, f"Make it longer: {limit.wording}.", IssueSeverity.MAJOR, {COMPLETENESS: cost})


def _invented(draft: Reading, task: Task, passages: Sequence[Passage]) -> Iterator[RuleFinding]:
    found = find_ungrounded(draft.text, task.text, passages)
    for place, finding in enumerate(found[:_MOST_DETAILS]):
        yield RuleFinding(
            f"{finding.explanation.rstrip('.')}, and the draft says “{shortened(finding.text)}”.",
            f"Take “{shortened(finding.text)}” out, or replace it by what the passages say.",
            IssueSeverity.MAJOR,
            {TECHNICAL_QUALITY: 0.05 if place else _INVENTED},
            quote=finding.text,
        )


_Rule = Callable[[Reading, Task], Iterator[RuleFinding]]
_RULES: Final[tuple[_Rule, ...]] = (_placeholders, _unfinished, _empty_parts, _repeats, _missing_points, _length)
