"""What the offline provider says about itself, by which its grades and verdicts are remembered."""

from errata_kit.passages import Passage
from services.judge.claims.splitting import split_claims
from services.judge.offline import OfflineProvider
from tests.unit.judge.test_offline_checker import LetterEncoder


def test_the_version_of_the_rules_tells_what_they_are_and_how_they_read() -> None:
    words, vectors = OfflineProvider(None).versions, OfflineProvider(LetterEncoder()).versions
    assert words == OfflineProvider(None).versions
    assert set(words) == {"grade_passage", "check_claims"}
    assert len({*words.values(), *vectors.values()}) == 4 and all(len(version) == 12 for version in words.values())


async def test_a_claim_rests_on_every_passage_and_several_passages_are_graded_each_for_itself() -> None:
    provider = OfflineProvider(None)
    passages = (Passage("a", "Files are kept for 30 days."), Passage("b", "The parser reads YAML."))
    claims = split_claims("Files are kept for 30 days. The parser reads YAML.")
    assert provider.evidence_sets(claims, passages) == ((0, 1), (0, 1))
    question = "How long are files kept?"
    together = await provider.grade_passages(question, passages)
    alone = [(await provider.grade_passages(question, (passage,)))[0] for passage in passages]
    assert list(together) == alone and together[0].grade.score > together[1].grade.score
