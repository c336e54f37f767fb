"""Chooses the provider that the settings ask for, and puts the cache before it."""

from collections.abc import Awaitable, Callable
from functools import partial

from errata_kit.caching.opening import open_cache
from errata_kit.encoding import CountedEncoder
from errata_kit.llm.openai_chat import OpenAIChat
from errata_kit.llm.prompts import PromptLibrary
from errata_kit.llm.settings import Provider as ProviderName
from errata_kit.metrics import Metrics
from errata_kit.minilm import MiniLM
from services.judge.caching import CachingProvider
from services.judge.offline import OfflineProvider
from services.judge.openai import OpenAIProvider
from services.judge.provider import Provider
from services.judge.settings import JudgeSettings

Step = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    return None


def open_provider(settings: JudgeSettings, metrics: Metrics) -> tuple[Provider, Step, Step]:
    """The provider, what makes it ready, and what closes it. Raises StartFailed when the cache can't be used."""
    cache = open_cache(settings)
    provider, ready, close = _provider(settings, metrics)

    async def close_both() -> None:
        await close()
        await cache.close()

    lookups = (partial(metrics.record_lookups, name) for name in ("passage_grades", "claim_verdicts"))
    return CachingProvider(provider, cache, *lookups), ready, close_both


def _provider(settings: JudgeSettings, metrics: Metrics) -> tuple[Provider, Step, Step]:
    if settings.provider is ProviderName.OFFLINE:
        encoder = MiniLM()
        counted = CountedEncoder(encoder, partial(metrics.record_lookups, "sentence_vectors"))
        return OfflineProvider(counted), encoder.warm_up, _nothing
    model = OpenAIChat(settings, temperature=0.0, record=metrics.record_model_call, queue=metrics.record_model_queue)
    return OpenAIProvider(model, PromptLibrary.load("services.judge")), model.warm_up, model.aclose
