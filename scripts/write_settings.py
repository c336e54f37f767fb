"""Writes the settings tables of docs/configuration.md from the settings classes; with --check, fails when they differ."""

import re
import sys
from pathlib import Path

from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from errata_kit.llm.settings import ModelSettings  # noqa: E402
from errata_kit.settings import ServiceSettings, is_secret  # noqa: E402
from errata_kit.tracing_settings import VARIABLES  # noqa: E402
from services.generator.settings import GeneratorSettings  # noqa: E402
from services.judge.settings import JudgeSettings  # noqa: E402
from services.orchestrator.settings import OrchestratorSettings  # noqa: E402
from services.retriever.settings import RetrieverSettings  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
_TABLES = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- end -->)", re.DOTALL)


def tables() -> str:
    """Every setting, grouped: all services, model clients, then each service's own."""
    shared = _rows(ServiceSettings.model_fields)
    models = {name: row for name, row in _rows(ModelSettings.model_fields).items() if name != "ERRATA_LLM_MODEL"}
    parts = [_table("All services", shared), _table("Model clients of judge, generator and retriever", models)]
    for title, own in (
        ("Orchestrator", OrchestratorSettings),
        ("Retriever", RetrieverSettings),
        ("Judge", JudgeSettings),
        ("Generator", GeneratorSettings),
    ):
        rows = {name: row for name, row in _rows(own.model_fields).items() if name not in shared and name not in models}
        parts.append(_table(title, rows))
    return "\n".join([*parts, _tracing()])


def _tracing() -> str:
    names = ", ".join(f"`{name}`" for name in VARIABLES)
    return f"## Traces\n\nThese variables have the meaning that the OpenTelemetry specification gives them: {names}.\n"


def _rows(fields: dict[str, FieldInfo]) -> dict[str, str]:
    rows = {}
    for field in fields.values():
        default = field.get_default(call_default_factory=True, validated_data={})
        shown = "" if default in (None, "") else f"`{getattr(default, 'value', default)}`"
        name = str(field.validation_alias)
        from_file = f" Or `{name}_FILE`, the file that holds it." if is_secret(field) else ""
        rows[name] = f"| `{name}` | {shown} | {field.description or ''}{from_file} |"
    return rows


def _table(title: str, rows: dict[str, str]) -> str:
    head = "| variable | default | meaning |\n|---|---|---|"
    return "\n".join([f"## {title}", "", head, *rows.values(), ""])


def main() -> int:
    """Write the tables, or compare them."""
    text = PAGE.read_text(encoding="utf-8")
    written = _TABLES.sub(lambda _: f"\n{tables()}\n", text)
    if "--check" in sys.argv[1:]:
        if written != text:
            sys.stderr.write("docs/configuration.md does not match the settings; run `make docs`\n")
        return int(written != text)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
