"""List prices of model calls, from the price table that `genai-prices` packages; no network."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from errata_kit.llm.usage import TokenCount

OFFLINE_MODEL = "offline"
"""The name that the offline providers report."""

_MICROS = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of the models behind one endpoint.

    A base URL that belongs to a known provider selects that provider's prices. Behind any other address
    (a gateway, a proxy, a local server) OpenAI's model names cost what they cost at OpenAI, and the price
    of every other name is unknown.
    """

    base_url: str = "https://api.openai.com/v1"

    def load(self) -> None:
        """Read the price table, so that the first price does not have to wait for it."""
        self.cost_micros("gpt-4o-mini", TokenCount())

    def cost_micros(self, model: str, tokens: TokenCount) -> int | None:
        """The price in millionths of a dollar, rounded up; 0 for the offline model, None if unknown."""
        if model == OFFLINE_MODEL:
            return 0
        from genai_prices import Usage, calc_price

        usage = Usage(
            input_tokens=tokens.input,
            cache_read_tokens=min(tokens.cached_input, tokens.input),
            output_tokens=tokens.output,
        )
        try:
            if self._has_known_provider():
                price = calc_price(usage, model, provider_api_url=self.base_url).total_price
            else:
                price = calc_price(usage, model, provider_id="openai").total_price
        except (LookupError, ValueError):
            return None
        return int((price * _MICROS).to_integral_value(rounding=ROUND_CEILING))

    def _has_known_provider(self) -> bool:
        from genai_prices.data_snapshot import get_snapshot

        try:
            get_snapshot().find_provider(None, None, self.base_url)
        except LookupError:
            return False
        return True
