"""The workflows' graphs as Mermaid pictures, made from the compiled graphs."""

import re
from collections.abc import Mapping
from typing import Any, Final

from langgraph.graph.state import CompiledStateGraph

from services.orchestrator.workflows.answer import graph as answer
from services.orchestrator.workflows.compose import graph as compose

# The name stands in a comment behind the fence, so that each block says which graph it shows.
_BLOCK: Final = re.compile(r"```mermaid\n%% (\w+)\n.*?```", re.DOTALL)
_ANY_BLOCK: Final = "```mermaid\n"


def pictures() -> dict[str, str]:
    """A Mermaid flowchart for each workflow, by its name."""
    return {"answer": picture(answer.build_graph()), "compose": picture(compose.build_graph())}


def picture(graph: CompiledStateGraph[Any, Any, Any, Any]) -> str:
    """A Mermaid flowchart: solid arrows are always taken, dotted ones are chosen by the workflow's policy.py."""
    drawn = graph.get_graph()
    lines = ["flowchart TD"]
    lines += [f"    {node}" for node in drawn.nodes if node not in {"__start__", "__end__"}]
    for edge in drawn.edges:
        arrow = "-.->" if edge.conditional else "-->"
        lines.append(f"    {_shown(edge.source)} {arrow} {_shown(edge.target)}")
    return "\n".join(lines)


def replace_pictures(page: str, drawn: Mapping[str, str]) -> str:
    """The page with its Mermaid blocks replaced. Raises ValueError unless it has exactly one for each graph."""
    if page.count(_ANY_BLOCK) != len(drawn) or sorted(_BLOCK.findall(page)) != sorted(drawn):
        raise ValueError(f"the page must have exactly one Mermaid block for each of {', '.join(sorted(drawn))}")
    return _BLOCK.sub(lambda found: f"```mermaid\n%% {found[1]}\n{drawn[found[1]]}\n```", page)


def _shown(node: str) -> str:
    return {"__start__": "start([start])", "__end__": "done([end])"}.get(node, node)
