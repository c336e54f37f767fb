"""What four running services tell: metrics that rules and dashboard name, and one trace of a run through all of them."""

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc

from errata_cli.stack import SERVICES
from errata_kit.metrics import LABELS
from scripts import check_observability as check
from tests.harness.model_server import ModelServer
from tests.harness.otlp_collector import Collector, ReceivedSpan, otlp_collector
from tests.harness.suite import Background, Suite, running_suite
from tests.system.conftest import ingest_corpus

pytestmark = pytest.mark.system
traced = pytest.mark.xdist_group("telemetry")
untraced = pytest.mark.xdist_group("suite")

QUESTION = "How long is a backup kept?"
TASK = "A backup is made every night and is kept for plumbogast days."
KEY = "sk-qwervulent-0123456789"
# Words of the question, the task, the documents, the prompts and the keys.
WRITTEN = ("how long", "tidepool", "night at", "plumbogast", "30 days", "you are", "<<<", "qwervulent")
RPC = "errata.{0}.v1.{1}Service/{2}".format
ASK = RPC("orchestrator", "Orchestrator", "Ask")
TREE = {
    # What each span of an ask is called, where it is made, and what it is made under.
    ("orchestrator", "server", ASK): None,
    ("orchestrator", "internal", "run answer"): ("orchestrator", "server", ASK),
    **{
        ("orchestrator", "internal", step): ("orchestrator", "internal", "run answer")
        for step in ("retrieve", "grade_passages", "generate", "grade_answer")
    },
    **{
        ("orchestrator", "client", call): ("orchestrator", "internal", step)
        for step, call in (
            ("retrieve", RPC("retriever", "Retriever", "Search")),
            ("grade_passages", RPC("judge", "Judge", "GradePassages")),
            ("generate", RPC("generator", "Generator", "GenerateAnswer")),
            ("generate", RPC("judge", "Judge", "CheckClaims")),
            ("grade_answer", RPC("judge", "Judge", "GradeAnswer")),
        )
    },
    **{
        (service, "server", call): ("orchestrator", "client", call)
        for service, call in (
            ("retriever", RPC("retriever", "Retriever", "Search")),
            ("judge", RPC("judge", "Judge", "GradePassages")),
            ("generator", RPC("generator", "Generator", "GenerateAnswer")),
            ("judge", RPC("judge", "Judge", "CheckClaims")),
            ("judge", RPC("judge", "Judge", "GradeAnswer")),
        )
    },
    ("retriever", "client", "embeddings text-embedding-3-small"): (
        "retriever",
        "server",
        RPC("retriever", "Retriever", "Search"),
    ),
}
# Who asks the model depends on the call that it works for, so its spans are looked at on their own.
CHATS = ("chat gpt-4o-mini", "chat gpt-4o")


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with otlp_collector() as running:
        yield running


@pytest.fixture(scope="session")
def telling(background: Background, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite on the double of a model that exports its spans."""
    server = ModelServer()
    background.run(server.__aenter__())
    variables = {
        "ERRATA_LLM_PROVIDER": "openai",
        "RETRIEVER_EMBEDDING_PROVIDER": "openai",
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": KEY,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={KEY}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    try:
        with running_suite(background, tmp_path_factory.mktemp("telling"), variables) as running:
            ingest_corpus(running, tmp_path_factory.mktemp("corpus"))
            yield running
    finally:
        background.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def asked(telling: Suite) -> str:
    """The id of a run that has answered."""
    done = telling.errata("ask", QUESTION, "--collection", "tidepool", "--json")
    assert done.code == 0, done.err
    return str(json.loads(done.out.splitlines()[0])["run_id"])


@pytest.fixture(scope="session")
def composed(telling: Suite) -> None:
    """A run of the other workflow has ended, approved or not."""
    done = telling.errata("compose", TASK, "--collection", "tidepool")
    assert "overall" in done.out.rpartition("retrieved")[2], done.out + done.err


def trace_of(collector: Collector, run_id: str) -> tuple[ReceivedSpan, ...]:
    """The spans of a run's trace, once all of an ask are there."""
    collector.await_trace({*CHATS, *(name for _, _, name in TREE)}, 20)
    ids = {span.trace_id for span in collector.spans if span.run_id == run_id}
    assert len(ids) == 1, f"the run has spans in {len(ids)} traces"
    return collector.trace(ids.pop())


@traced
def test_an_ask_is_one_trace_through_all_four_services(telling: Suite, collector: Collector, asked: str) -> None:
    spans = trace_of(collector, asked)
    assert {span.run_id for span in spans} == {asked}
    assert {span.service for span in spans} == set(SERVICES)
    by_id = {span.span_id: span for span in spans}
    found: dict[tuple[str, str, str], tuple[str, str, str] | None] = {}
    for span in spans:
        if span.name in CHATS:
            continue
        parent = by_id.get(span.parent_id)
        found[span.service, span.kind, span.name] = None if parent is None else (parent.service, parent.kind, parent.name)
    assert found == TREE
    assert not [span.name for span in spans if span.failed or span.events]


@traced
def test_model_calls_are_spans_with_their_tokens_under_the_call_that_they_work_for(
    telling: Suite, collector: Collector, asked: str
) -> None:
    spans = trace_of(collector, asked)
    by_id = {span.span_id: span for span in spans}
    chats = [span for span in spans if span.name in CHATS]
    parents = {str(span.attributes["errata.operation"]): by_id[span.parent_id].name for span in chats}
    assert parents == {
        "grade_passage": RPC("judge", "Judge", "GradePassages"),
        "check_claims": RPC("judge", "Judge", "CheckClaims"),
        "generate_answer": RPC("generator", "Generator", "GenerateAnswer"),
    }
    for span in chats:
        assert span.kind == "client"
        assert span.attributes["gen_ai.operation.name"] == "chat"
        assert span.name == f"chat {span.attributes['gen_ai.request.model']}"
        assert int(span.attributes["gen_ai.usage.input_tokens"]) > 0
        assert int(span.attributes["gen_ai.usage.output_tokens"]) > 0


@traced
def test_the_logs_bear_the_ids_of_the_spans(telling: Suite, collector: Collector, asked: str) -> None:
    (trace_id,) = {span.trace_id for span in trace_of(collector, asked)}
    for name in SERVICES:
        lines = [entry for entry in telling.entries(name) if entry.get("run_id") == asked]
        assert lines, name
        assert {entry["trace_id"] for entry in lines} == {trace_id}, name


@traced
def test_spans_hold_nothing_that_anybody_wrote(telling: Suite, collector: Collector, asked: str, composed: None) -> None:
    collector.await_trace({"run compose", RPC("orchestrator", "Orchestrator", "Compose")}, 20)
    texts = [str(item).lower() for span in collector.spans for item in (span.name, *span.attributes.values())]
    assert [text for text in texts for word in WRITTEN if word in text] == []
    assert len(texts) > 100


@traced
def test_a_caller_s_trace_goes_on(telling: Suite, collector: Collector, asked: str) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with telling.channel("orchestrator") as channel:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        metadata = (("traceparent", f"00-{trace_id}-{span_id}-01"),)
        request = pb2.AskRequest(question=QUESTION, collection="tidepool")
        assert list(stub.Ask(request, timeout=30, metadata=metadata))
    spans = collector.await_trace({ASK, "grade_answer"}, 20, trace_id=trace_id)
    (ask,) = (span for span in spans if span.name == ASK)
    assert (ask.trace_id, ask.parent_id) == (trace_id, span_id)


@traced
def test_a_method_that_does_not_exist_leaves_neither_label_nor_span(telling: Suite, collector: Collector) -> None:
    with telling.channel("orchestrator") as channel:
        for method in ("/errata.orchestrator.v1.OrchestratorService/Zyxomatic", "/zyxomatic.v1.Service/Get"):
            with pytest.raises(grpc.RpcError) as failure:
                call: Any = channel.unary_unary(method)
                call(b"", timeout=10)
            refused: Any = failure.value
            assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "yxomatic" not in telling.metrics("orchestrator")
    assert not [span.name for span in collector.spans if "yxomatic" in span.name]


@traced
def test_every_metric_of_rules_and_dashboard_is_on_a_page(telling: Suite, asked: str, composed: None) -> None:
    pages = "".join(telling.metrics(name) for name in SERVICES)
    wanted = frozenset[str]().union(*(check.metrics_of(query.expression) for query in check.queries())) - {"up"}
    there = set(re.findall(r"^(\w+)[{ ]", pages, re.MULTILINE))
    assert wanted <= there
    labels = set(re.findall(r'[{,](\w+)="', pages))
    assert labels <= LABELS | {"le"}, labels - LABELS
    assert asked not in pages


@traced
@pytest.mark.parametrize(
    ("service", "sample"),
    [
        ("orchestrator", 'errata_runs_total{outcome="ANSWERED",workflow="answer"}'),
        ("orchestrator", 'errata_run_retrievals_count{workflow="answer"}'),
        ("judge", 'errata_judgements_total{operation="grade_passage"}'),
        ("judge", 'errata_judgements_total{operation="check_claims"}'),
        ("judge", 'errata_judgements_total{operation="review_draft"}'),
        ("judge", "errata_passage_score_count"),
        ("judge", "errata_faithfulness_score_count"),
        ("judge", "errata_draft_score_count"),
        ("judge", 'errata_model_tokens_total{kind="input",model="gpt-4o-mini",operation="check_claims"}'),
        ("judge", 'errata_model_cost_dollars_total{model="gpt-4o-mini",operation="check_claims"}'),
        ("generator", 'errata_model_calls_total{model="gpt-4o",operation="generate_answer",result="ok"}'),
        ("retriever", 'errata_model_calls_total{model="text-embedding-3-small",operation="embed",result="ok"}'),
    ],
)
def test_what_happened_was_counted(telling: Suite, asked: str, composed: None, service: str, sample: str) -> None:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", telling.metrics(service), re.MULTILINE)
    assert found is not None, sample
    assert float(found[1]) > 0


@traced
@pytest.mark.parametrize("service", SERVICES)
def test_nothing_waits_when_all_is_done(telling: Suite, asked: str, composed: None, service: str) -> None:
    page = telling.metrics(service)
    gauges = re.findall(r"^(errata_(?:calls|runs|model_requests)_(?:in_flight|waiting)\S*) (\S+)$", page, re.MULTILINE)
    assert gauges
    assert {name: value for name, value in gauges if float(value) != 0} == {}
    assert f'service="{service}"' in page


@untraced
def test_the_offline_providers_count_their_caches(suite: Suite, corpus: str) -> None:
    for _ in range(2):
        assert suite.errata("ask", QUESTION, "--collection", corpus).code == 0
    for name in ("judge", "generator"):
        page = suite.metrics(name)
        for result in ("hit", "miss"):
            sample = rf'^errata_cache_requests_total{{cache="sentence_vectors",result="{result}"}} (\S+)$'
            found = re.search(sample, page, re.MULTILINE)
            assert found is not None, f"{name}: {result}"
            assert float(found[1]) > 0, f"{name}: {result}"


@untraced
def test_by_default_no_service_talks_to_anybody_but_the_suite(suite: Suite, corpus: str) -> None:
    assert not [name for name in os.environ if name.startswith("OTEL_")], "these tests are for an environment without OTEL_*"
    assert suite.errata("ask", QUESTION, "--collection", corpus).code == 0
    own = set(suite.plan.ports.values()) | set(suite.plan.metrics_ports.values())
    for name in SERVICES:
        peers = connections(suite.stack.pid(name))
        strangers = [(local, remote) for local, remote in peers if local[1] not in own and remote[1] not in own]
        assert strangers == [], name
    assert all(entry.get("trace_id") for entry in suite.entries() if entry["event"] == "call")


def connections(pid: int) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """The open TCP connections of a process: local and remote address and port of each."""
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, state, *rest = line.split()
            # 01 is an established connection; the inode is the seventh field behind the state.
            if state == "01" and f"socket:[{rest[5]}]" in held:
                found.append((address(local, family), address(remote, family)))
    return found


def address(text: str, family: socket.AddressFamily) -> tuple[str, int]:
    host, port = text.split(":")
    # The kernel writes each group of four bytes in the order of the machine.
    raw = b"".join(bytes.fromhex(host[start : start + 8])[::-1] for start in range(0, len(host), 8))
    return socket.inet_ntop(family, raw), int(port, 16)
