"""The answer graph as a Mermaid picture, made from the compiled graph."""

import re
from typing import Final

from services.orchestrator.workflows.answer.graph import build_graph

_BLOCK: Final = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def picture() -> str:
    """A Mermaid flowchart: solid arrows are always taken, dotted ones are chosen by policy.py."""
    drawn = build_graph().get_graph()
    lines = ["flowchart TD"]
    lines += [f"    {node}" for node in drawn.nodes if node not in {"__start__", "__end__"}]
    for edge in drawn.edges:
        arrow = "-.->" if edge.conditional else "-->"
        lines.append(f"    {_shown(edge.source)} {arrow} {_shown(edge.target)}")
    return "\n".join(lines)


def replace_picture(page: str, drawn: str) -> str:
    """The page with its Mermaid block replaced. Raises ValueError for a page that has not exactly one."""
    if len(_BLOCK.findall(page)) != 1:
        raise ValueError("the page must have exactly one Mermaid block")
    return _BLOCK.sub(lambda _: f"```mermaid\n{drawn}\n```", page)


def _shown(node: str) -> str:
    return {"__start__": "start([start])", "__end__": "done([end])"}.get(node, node)
