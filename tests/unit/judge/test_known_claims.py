"""Claims that were checked before: an answer is graded alike whether the provider is asked about all of them, some or none."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errata_kit.drafts import Criterion
from errata_kit.grades import Claim, Evidence, Verdict
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage, Span
from errata_kit.usage import ModelCall
from services.judge.assessment import AnswerAssessor, GradedAnswer
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim, Quote
from services.judge.offline import OfflineProvider
from services.judge.provider import CheckedClaims, GradedPassage, Provider, ReviewedDraft

QUESTION = "How long are files kept?"
LONG = "The archive " + "keeps every single one of the many old files and " * 8 + "never loses any."
PASSAGES = (
    Passage("a", "Files are kept for 30 days. After that they are deleted, unless `keep` is set. FILES ARE KEPT FOR 30 DAYS."),
    Passage("b", f"{LONG} Administrators can enable audit logs in the settings page.", title="Archive"),
    Passage("c", "Größe zählt: die Prüfung läuft täglich. Connections are closed after 30 seconds without traffic."),
)
SENTENCES = (
    "Files are kept for 30 days. [1]",
    "FILES are KEPT for 30 days.",
    "Files are kept for 90 days.",
    "Files are not kept for 30 days.",
    f"{LONG} [2]",
    "Administrators can disable audit logs in the settings page.",
    "Set `retention.maxAge` and files are kept for 30 days. [1]",
    "Größe zählt: die Prüfung läuft täglich. [3]",
    "Connections are closed after 30 seconds without traffic, says --quiet.",
    "Penguins migrate across frozen oceans each winter.",
    "It is so.",
    "I don't know anything about penguins.",
    "Yes.",
)
ANSWERS = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8)


class Counted:
    """Hands on to a provider what it is asked about, and keeps it."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.asked: list[str] = []

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def versions(self) -> Mapping[str, str]:
        return self._provider.versions

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        return await self._provider.grade_passages(question, passages)

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        self.asked += [claim.text for claim in claims]
        return await self._provider.check_claims(question, claims, passages)

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        return self._provider.evidence_sets(claims, passages)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        return await self._provider.review_draft(task, draft, criteria, passages)


class Model(OfflineProvider):
    """Verdicts as a model gives them: alone, with quotes of any length and casing, and some that are in no passage."""

    def __init__(self) -> None:
        super().__init__(None)

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        return CheckedClaims(tuple(self._verdict(claim, passages) for claim in claims), (ModelCall("m", "check_claims"),))

    def _verdict(self, claim: ClaimText, passages: tuple[Passage, ...]) -> CheckedClaim:
        drawn = sha256(claim.text.encode()).digest()
        passage = passages[drawn[1] % len(passages)]
        quotes = (
            (),
            (Quote(passage.passage_id, passage.text),),
            (Quote(passage.passage_id, passage.text[: 20 + drawn[2] % 40].upper()), Quote(passage.passage_id, "made up words")),
            (Quote("nowhere", passage.text),),
        )[drawn[3] % 4]
        return CheckedClaim(claim.text, claim.start, claim.end, list(Verdict)[drawn[4] % 4], None, quotes, f"It is {drawn[5]}.")


@pytest.mark.parametrize("make", [lambda: OfflineProvider(None), Model], ids=["offline", "model"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sentences=ANSWERS, data=st.data())
async def test_an_answer_is_graded_alike_whichever_of_its_claims_are_known(
    make: Callable[[], Provider], sentences: list[str], data: st.DataObject
) -> None:
    provider = Counted(make())
    assessor = AnswerAssessor(provider, Metrics())
    answer = " ".join(sentences)
    whole = await assessor.assess(QUESTION, answer, PASSAGES)
    known = tuple(claim for claim in whole.grade.claims if data.draw(st.booleans()))
    provider.asked.clear()
    again = await assessor.assess(QUESTION, answer, PASSAGES, known)
    assert again.grade == whole.grade
    wanted = [claim.text for claim in whole.grade.claims]
    for claim in known:
        wanted.remove(claim.text)
    assert sorted(provider.asked) == sorted(wanted)
    assert bool(again.model_calls) == (bool(wanted) and isinstance(provider._provider, Model))


@pytest.mark.parametrize("make", [lambda: OfflineProvider(None), Model], ids=["offline", "model"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sentences=ANSWERS, cuts=st.sets(st.integers(0, 8)))
async def test_segments_and_the_whole_come_to_the_same_grade(
    make: Callable[[], Provider], sentences: list[str], cuts: set[int]
) -> None:
    provider = Counted(make())
    assessor = AnswerAssessor(provider, Metrics())
    bounds = sorted({0, *(cut for cut in cuts if cut < len(sentences))})
    segments = [" ".join(sentences[start:end]) for start, end in pairwise([*bounds, len(sentences)])]
    checked = [await assessor.check(QUESTION, segment, PASSAGES) for segment in segments]
    for segment, found in zip(segments, checked, strict=True):
        assert [claim.claim_id for claim in found.claims] == [f"c{n}" for n in range(1, len(found.claims) + 1)]
        ends = [segment.encode()[claim.span.start : claim.span.end] for claim in found.claims]
        assert all(end.decode() in " ".join(sentences) for end in ends)
    whole = await assessor.assess(QUESTION, " ".join(sentences), PASSAGES)
    provider.asked.clear()
    known = tuple(claim for found in checked for claim in found.claims)
    assert (await assessor.assess(QUESTION, " ".join(sentences), PASSAGES, known)).grade == whole.grade
    assert provider.asked == []
    assert sum(len(found.findings) for found in checked) == len(whole.grade.findings)


def known(text: str, verdict: Verdict = Verdict.SUPPORTED, support: float = 1.0, *quotes: tuple[str, str]) -> Claim:
    evidence = tuple(Evidence(passage_id, quote, Span(0, 1)) for passage_id, quote in quotes)
    return Claim("c9", text, Span(0, 1), verdict, support, evidence, "Known.")


async def assessed(answer: str, *claims: Claim) -> tuple[GradedAnswer, list[str]]:
    provider = Counted(Model())
    return await AnswerAssessor(provider, Metrics()).assess(QUESTION, answer, PASSAGES, claims), provider.asked


async def test_ids_and_spans_are_made_anew_and_the_rest_is_kept() -> None:
    claim = known("Files are kept for 30 days.", Verdict.SUPPORTED, 0.7, ("a", "kept for 30 days"))
    graded, asked = await assessed("Ok so. Files are **kept** for 30 days. [1]", claim)
    found = graded.grade.claims[1]
    assert (found.claim_id, found.text, found.verdict, found.support) == ("c2", claim.text, Verdict.SUPPORTED, 0.7)
    assert found.explanation == "Known." and found.evidence[0].quote == "kept for 30 days"
    assert PASSAGES[0].text.encode()[found.evidence[0].span.start : found.evidence[0].span.end] == b"kept for 30 days"
    assert asked == ["Ok so."]


@pytest.mark.parametrize("quote", [("a", "kept for 31 days"), ("c", "kept for 30 days"), ("z", "kept for 30 days"), ("a", " ")])
async def test_evidence_of_a_known_claim_that_is_not_there_supports_nothing(quote: tuple[str, str]) -> None:
    graded, asked = await assessed(
        "Files are kept for 30 days.", known("Files are kept for 30 days.", Verdict.SUPPORTED, 1.0, quote)
    )
    [found] = graded.grade.claims
    assert found.verdict is Verdict.UNSUPPORTED and found.support == 0 and not found.evidence and asked == []
    assert "not in the passages" in found.explanation


async def test_the_guard_lowers_a_known_claim() -> None:
    text = "Files are kept for 30 days with `retention.maxAge`."
    graded, asked = await assessed(text, known(text, Verdict.SUPPORTED, 1.0, ("a", "kept for 30 days")))
    assert graded.grade.claims[0].verdict is Verdict.UNSUPPORTED and graded.grade.findings[0].claim_id == "c1"
    assert asked == []


async def test_equal_claims_are_matched_in_order_and_each_known_one_once() -> None:
    text = "Files are kept for 30 days."
    first = known(text, Verdict.UNSUPPORTED, 0.0)
    second = known(text, Verdict.SUPPORTED, 1.0, ("a", "kept for 30 days"))
    graded, asked = await assessed(f"{text} {text} {text}", first, second)
    assert [claim.verdict for claim in graded.grade.claims[:2]] == [Verdict.UNSUPPORTED, Verdict.SUPPORTED]
    assert asked == [text]


async def test_a_text_that_may_have_been_cut_off_equals_none() -> None:
    text = "Files " + "and files " * 300 + "are kept."
    graded, asked = await assessed(text, known(text[:2000], Verdict.SUPPORTED, 1.0, ("a", "kept for 30 days")))
    assert asked == [text] and len(graded.grade.claims[0].text) == 2000


async def test_an_answer_of_known_claims_alone_asks_nobody() -> None:
    text = "Files are kept for 30 days."
    graded, asked = await assessed(text, known(text, Verdict.SUPPORTED, 1.0, ("a", "kept for 30 days")), known("Other."))
    assert asked == [] and graded.model_calls == () and graded.grade.faithfulness_score == 1.0
