"""List prices of model calls, from the price table that `genai-prices` packages; no network."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from errata_kit.llm.usage import TokenCount

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.types import PriceCalculation

OFFLINE_MODEL = "offline"
"""The name that the offline providers report."""

_MICROS = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class _Rates:
    """Dollars a token of each kind, of a model whose price depends on nothing else."""

    uncached_input: Decimal
    cached_input: Decimal
    output: Decimal

    def price(self, tokens: TokenCount) -> Decimal:
        """Dollars for these tokens."""
        cached = min(tokens.cached_input, tokens.input)
        return (tokens.input - cached) * self.uncached_input + cached * self.cached_input + tokens.output * self.output


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of the models behind one endpoint.

    A base URL that belongs to a known provider selects that provider's prices. Behind any other address
    (a gateway, a proxy, a local server) OpenAI's model names cost what they cost at OpenAI, and the price
    of every other name is unknown.
    """

    base_url: str = "https://api.openai.com/v1"
    # Models by name: few, since they come from settings.
    _flat: dict[str, _Rates] = field(default_factory=dict, init=False, repr=False, compare=False)

    def load(self) -> None:
        """Read the price table, so that the first price does not have to wait for it."""
        self.cost_micros("gpt-4o-mini", TokenCount())

    def cost_micros(self, model: str, tokens: TokenCount) -> int | None:
        """The price in millionths of a dollar, rounded up; 0 for the offline model, None if unknown."""
        if model == OFFLINE_MODEL:
            return 0
        rates = self._flat.get(model)
        try:
            price = rates.price(tokens) if rates is not None else self._looked_up(model, tokens)
        except (LookupError, ValueError):
            return None
        return int((price * _MICROS).to_integral_value(rounding=ROUND_CEILING))

    def _looked_up(self, model: str, tokens: TokenCount) -> Decimal:
        from genai_prices import Usage
        from genai_prices.types import ModelPrice, TieredPrices

        usage = Usage(
            input_tokens=tokens.input,
            cache_read_tokens=min(tokens.cached_input, tokens.input),
            output_tokens=tokens.output,
        )
        found = self._calculated(usage, model)
        prices = found.model.prices
        # Prices that change with the time of day or the length of the prompt are looked up for each call.
        if isinstance(prices, ModelPrice) and not any(isinstance(price, TieredPrices) for price in vars(prices).values()):
            one = (Usage(input_tokens=1), Usage(input_tokens=1, cache_read_tokens=1), Usage(output_tokens=1))
            self._flat[model] = _Rates(*(self._calculated(usage, model).total_price for usage in one))
        return found.total_price

    def _calculated(self, usage: Usage, model: str) -> PriceCalculation:
        from genai_prices import calc_price

        if self._has_known_provider():
            return calc_price(usage, model, provider_api_url=self.base_url)
        return calc_price(usage, model, provider_id="openai")

    def _has_known_provider(self) -> bool:
        from genai_prices.data_snapshot import get_snapshot

        try:
            get_snapshot().find_provider(None, None, self.base_url)
        except LookupError:
            return False
        return True
