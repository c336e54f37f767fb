"""Prices a token that are remembered: the same money as the price table says, call by call."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import pytest
from genai_prices import Usage, calc_price

from errata_kit.llm.pricing import PriceList
from errata_kit.llm.usage import TokenCount

GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
OPENAI = "https://api.openai.com/v1"
# The last counts are longer than what any model has its lower price for.
COUNTS = (
    TokenCount(),
    TokenCount(1),
    TokenCount(1900, 1024, 300),
    TokenCount(10, 40, 7),
    TokenCount(0, 0, 1),
    TokenCount(900_000, 1, 9),
)


def by_the_table(address: str, model: str, tokens: TokenCount) -> int:
    """What the library makes of one call."""
    cached = min(tokens.cached_input, tokens.input)
    usage = Usage(input_tokens=tokens.input, cache_read_tokens=cached, output_tokens=tokens.output)
    price: Decimal = calc_price(usage, model, provider_api_url=address).total_price
    return int((price * 1_000_000).to_integral_value(rounding=ROUND_CEILING))


# The price of some depends on the length of the prompt, or on the day.
@pytest.mark.parametrize(
    ("address", "model"),
    [
        (OPENAI, "gpt-4o-mini"),
        (OPENAI, "gpt-4o"),
        (OPENAI, "gpt-5-mini"),
        (OPENAI, "o3"),
        (OPENAI, "gpt-5.4"),
        (GOOGLE, "gemini-2.5-pro"),
        (GOOGLE, "gemini-2.5-flash"),
    ],
)
def test_a_price_is_the_same_the_first_time_and_later(address: str, model: str) -> None:
    prices = PriceList(address)
    for tokens in (*COUNTS, *COUNTS):
        assert prices.cost_micros(model, tokens) == by_the_table(address, model, tokens)


def test_an_unknown_model_stays_unknown() -> None:
    prices = PriceList()
    assert [prices.cost_micros("house-7b", TokenCount(10, 0, 10)) for _ in range(2)] == [None, None]
    assert prices == PriceList()
