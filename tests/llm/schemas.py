"""Whether a JSON value fits a schema, as far as the suite's schemas go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def fits(text: str, schema: Schema) -> bool:
    """Whether a text is JSON that a schema allows; False for a text that is none."""
    try:
        return _fits(json.loads(text), schema, schema)
    except ValueError:
        return False


def _fits(value: Any, schema: Schema, root: Schema) -> bool:
    while "$ref" in schema:
        place: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            place = place[name]
        schema = place
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            whole = isinstance(value, dict) and set(schema.get("required", ())) <= set(value) <= set(known)
            return whole and all(_fits(inner, known[name], root) for name, inner in value.items())
        case "array":
            bounded = isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            return bounded and all(_fits(inner, schema["items"], root) for inner in value)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number" as kind:
            number = isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
            return number and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    raise AssertionError(f"a schema of a kind that this does not know: {schema}")
