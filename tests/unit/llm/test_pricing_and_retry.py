"""Prices, estimates of tokens, and pauses between attempts."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy, retry_after_seconds
from errata_kit.llm.usage import TokenCount, estimate_tokens


@pytest.mark.parametrize(
    ("model", "address", "micros"),
    [
        ("gpt-4o-mini", "https://api.openai.com/v1", 210),
        ("gpt-4o-mini-2024-07-18", "https://gateway.example.com/v1", 210),
        ("gpt-4o", "http://127.0.0.1:9/v1", 3500),
        ("text-embedding-3-small", "https://api.openai.com/v1", 20),
        ("house-7b", "http://127.0.0.1:9/v1", None),
        ("gpt-4o-mini", "https://api.groq.com/openai/v1", None),
        ("offline", "https://api.openai.com/v1", 0),
    ],
)
def test_prices_are_known_free_or_unknown(model: str, address: str, micros: int | None) -> None:
    assert PriceList(address).cost_micros(model, TokenCount(1000, 0, 100)) == micros


def test_cached_tokens_are_cheaper_and_costs_round_up() -> None:
    prices = PriceList()
    assert prices.cost_micros("gpt-4o-mini", TokenCount(1000, 1000, 0)) == 75
    assert prices.cost_micros("gpt-4o-mini", TokenCount(1, 0, 0)) == 1
    assert prices.cost_micros("gpt-4o-mini", TokenCount(10, 40, 0)) == 1


def test_tokens_are_estimated_by_length() -> None:
    assert [estimate_tokens(size) for size in (0, 1, 43, 4300)] == [0, 1, 10, 1000]


def test_pauses_grow_to_a_cap_with_full_jitter() -> None:
    most = RetryPolicy(base_seconds=0.5, cap_seconds=3.0, draw=lambda: 1.0)
    assert [most.pause(attempt, None) for attempt in (1, 2, 3, 4, 60)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert RetryPolicy(draw=lambda: 0.0).pause(3, None) == 0.0
    assert RetryPolicy(draw=lambda: 0.0).pause(1, 20.0) == 20.0
    assert most.pause(1, 20.0) == pytest.approx(22.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after_seconds({"retry-after": soon}) == pytest.approx(29.5, abs=1.5)


def test_importing_the_clients_loads_no_model_library() -> None:
    heavy = "{'openai', 'langchain_core', 'langchain_openai', 'httpx2', 'genai_prices'}"
    code = (
        "import sys, errata_kit.llm.openai_chat, errata_kit.llm.openai_embeddings\n"
        f"sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
