"""Valid instances of a JSON schema, made from hints where they fit and minimal where they do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def instance_of(schema: Schema, hints: Any = None) -> Any:
    """An instance of `schema` that takes what it can from `hints`.

    Covers what pydantic makes: references, unions, enums, constants, objects, arrays and bounds. Properties
    without a hint are left out unless they are required. A hint between 0 and 1 is stretched over the range
    of a number whose bounds are others.
    """
    return _build(schema, hints, schema)


def _build(schema: Schema, hint: Any, root: Schema) -> Any:
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _member(list(schema["enum"]), hint)
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return _build(_option(schema[union], hint), hint, root)
    match schema.get("type"):
        case "object":
            return _object(schema, hint, root)
        case "array":
            return _array(schema, hint, root)
        case "string":
            return _string(schema, hint)
        case "boolean":
            return hint if isinstance(hint, bool) else False
        case "integer" | "number":
            return _number(schema, hint)
        case _:
            return None


def _resolved(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        target: Any = root
        for key in str(schema["$ref"]).lstrip("#/").split("/"):
            target = target[key]
        schema = target
    return schema


def _option(options: list[Schema], hint: Any) -> Schema:
    solid = [option for option in options if option.get("type") != "null"]
    if hint is None and len(solid) < len(options):
        return {"type": "null"}
    return solid[0]


def _member(members: list[Any], hint: Any) -> Any:
    by_name = {str(member).casefold(): member for member in members}
    return by_name.get(str(hint).casefold(), members[0])


def _object(schema: Schema, hint: Any, root: Schema) -> dict[str, Any]:
    hints = hint if isinstance(hint, Mapping) else {}
    required = set(schema.get("required", ()))
    return {
        name: _build(part, hints.get(name), root)
        for name, part in schema.get("properties", {}).items()
        if name in required or name in hints
    }


def _array(schema: Schema, hint: Any, root: Schema) -> list[Any]:
    hints = list(hint) if isinstance(hint, list | tuple) else []
    least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
    hints = hints[:most] + [None] * (least - len(hints))
    return [_build(schema.get("items", {"type": "string"}), item, root) for item in hints]


def _string(schema: Schema, hint: Any) -> str:
    text = hint if isinstance(hint, str) else ""
    return text.ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]


def _number(schema: Schema, hint: Any) -> float | int:
    whole = schema.get("type") == "integer"
    low = _lowest(schema, 1.0 if whole else 1e-6)
    high = _highest(schema, 1.0 if whole else 1e-6)
    wanted = float(hint) if isinstance(hint, int | float) and math.isfinite(hint) else None
    if wanted is None:
        value = low if low is not None else min(0.0, high if high is not None else 0.0)
    elif low is not None and high is not None and 0 <= wanted <= 1:
        value = low + wanted * (high - low)
    else:
        value = wanted
    value = max(value, low) if low is not None else value
    value = min(value, high) if high is not None else value
    return round(value) if whole else value


def _lowest(schema: Schema, step: float) -> float | None:
    if "minimum" in schema:
        return float(schema["minimum"])
    return float(schema["exclusiveMinimum"]) + step if "exclusiveMinimum" in schema else None


def _highest(schema: Schema, step: float) -> float | None:
    if "maximum" in schema:
        return float(schema["maximum"])
    return float(schema["exclusiveMaximum"]) - step if "exclusiveMaximum" in schema else None
