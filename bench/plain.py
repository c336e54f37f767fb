"""The plain sequential design: grade, write, grade the whole answer, and when something failed write and grade all of it again.

It is what most pipelines that check themselves do. It runs here as code in one process, over the same model client and with
the same prompts as the services, and has passages handed to it: no gRPC, no search, no store, no trace, which is to its
advantage. So is that all prompts of a run share one nonce, which lets the provider's cache know their passages again.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.grades import Verdict
from errata_kit.llm.chat import ChatRequest, StreamEnd
from errata_kit.llm.openai_chat import OpenAIChat
from errata_kit.llm.prompts import PromptLibrary, RenderedPrompt, fence, new_nonce
from services.generator.settings import GeneratorSettings
from services.judge.claims.splitting import split_claims
from services.judge.openai import ClaimVerdictsOutput, PassageGradesOutput
from services.judge.settings import JudgeSettings

RELEVANCE_THRESHOLD: Final = 0.75
_MOST_REGENERATIONS: Final = 1


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a question. steps: how long each step took, in seconds, in their order."""

    text: str
    released: bool
    regenerations: int
    steps: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A claim that is not supported, and why."""

    claim: str
    explanation: str


class PlainDesign:
    """Answers questions from passages. Close it."""

    def __init__(self, base_url: str) -> None:
        reach = {"OPENAI_BASE_URL": base_url, "ERRATA_LLM_PROVIDER": "openai"}
        generator = GeneratorSettings.model_validate(reach)
        self._judge = OpenAIChat(JudgeSettings.model_validate(reach), temperature=0.0)
        self._writer = OpenAIChat(generator, temperature=generator.temperature)
        self._judging = PromptLibrary.load("services.judge")
        self._writing = PromptLibrary.load("services.generator")

    async def warm_up(self) -> None:
        """Load the libraries."""
        await asyncio.gather(self._judge.warm_up(), self._writer.warm_up())

    async def aclose(self) -> None:
        """Close the connections."""
        await asyncio.gather(self._judge.aclose(), self._writer.aclose())

    async def answer(self, question: str, passages: Sequence[str]) -> Answered:
        """Grade, write and grade; once more, from the start of the text, when a claim failed."""
        run = _Run(self._judge, self._writer, self._judging, self._writing, question)
        used = await run.relevant(passages)
        text = await run.written(used)
        failed = await run.failed(text, used)
        regenerations = 0
        while failed and regenerations < _MOST_REGENERATIONS:
            regenerations += 1
            text = await run.written(used, text, failed)
            failed = await run.failed(text, used)
        return Answered(text, not failed, regenerations, tuple(run.steps))


class _Run:
    def __init__(
        self, judge: OpenAIChat, writer: OpenAIChat, judging: PromptLibrary, writing: PromptLibrary, question: str
    ) -> None:
        self._judge = judge
        self._writer = writer
        self._judging = judging
        self._writing = writing
        self._nonce = new_nonce()
        self._question = fence("question", question, self._nonce)
        self.steps: list[tuple[str, float]] = []

    async def relevant(self, passages: Sequence[str]) -> tuple[str, ...]:
        """The passages that help, each judged by itself, all side by side."""
        with self._timed("grade_passages"):
            helpful = await asyncio.gather(*(self._helps(passage) for passage in passages))
        return tuple(passage for passage, helps in zip(passages, helpful, strict=True) if helps)

    async def _helps(self, passage: str) -> bool:
        values = {"question": self._question, "passages": self._fenced("passage", [passage])}
        prompt = self._judging["grade_passage"].render(values)
        output = (await self._judge.complete(ChatRequest("grade_passage", prompt), PassageGradesOutput)).value
        return all(grade.relevant and grade.score >= RELEVANCE_THRESHOLD for grade in output.grades)

    async def written(self, passages: Sequence[str], before: str = "", failed: Sequence[Failed] = ()) -> str:
        """An answer; with an earlier one and what failed in it, another whole one."""
        values = {"question": self._question, "passages": self._fenced("passage", passages)}
        prompt = self._writing["generate_answer"].render(values)
        if failed:
            prompt = self._with_feedback(prompt, before, failed)
        with self._timed("regenerate_answer" if failed else "generate_answer"):
            async with contextlib.aclosing(self._writer.stream(ChatRequest("generate_answer", prompt))) as events:
                async for event in events:
                    if isinstance(event, StreamEnd):
                        return event.text
        raise RuntimeError("a stream ends with its end")

    def _with_feedback(self, prompt: RenderedPrompt, before: str, failed: Sequence[Failed]) -> RenderedPrompt:
        claims = self._fenced("claim", [f"{item.claim}\nWhy it fails: {item.explanation}" for item in failed])
        user = (
            f"{prompt.user}\n\nAn earlier answer was rejected. Write the whole answer again, without what failed in it.\n\n"
            f"{fence('answer', before, self._nonce)}\n\nClaims that failed:\n\n{claims}"
        )
        return RenderedPrompt("regenerate_answer", prompt.version, prompt.system, user)

    async def failed(self, text: str, passages: Sequence[str]) -> tuple[Failed, ...]:
        """The claims of an answer that the passages do not support, all judged in one call."""
        claims = split_claims(text)
        values = {
            "question": self._question,
            "passages": self._fenced("passage", passages),
            "claims": self._fenced("claim", [claim.text for claim in claims]),
        }
        prompt = self._judging["check_claims"].render(values)
        with self._timed("check_claims"):
            output = (await self._judge.complete(ChatRequest("check_claims", prompt), ClaimVerdictsOutput)).value
        return tuple(
            Failed(claims[item.number - 1].text, item.explanation)
            for item in output.verdicts
            if item.verdict not in {Verdict.SUPPORTED, Verdict.UNVERIFIABLE}
        )

    def _fenced(self, label: str, texts: Sequence[str]) -> str:
        return "\n".join(fence(f"{label} {number}", text, self._nonce) for number, text in enumerate(texts, start=1))

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.steps.append((step, time.perf_counter() - started))
