"""The offline reviewer on whole drafts, with the packaged encoder: good ones pass by the default thresholds, poor ones fail by
the criterion that is to blame. The texts are about this repository and about Milvus.

The constants were chosen with CASES in view. AFTERWARDS came later: 8 of its first 11 were judged right at first sight, and
what the other three showed was mended, so that it is no longer unseen either.
"""

from dataclasses import dataclass, field
from functools import cache

import pytest

from errata_kit.drafts import DEFAULT_CRITERIA, Criterion, ReviewDecision
from errata_kit.minilm import MiniLM
from errata_kit.passages import Passage
from services.judge.offline import OfflineProvider
from services.judge.review.reviewer import DraftReviewer, ReviewTask


@dataclass(frozen=True)
class Case:
    """A draft, and the criteria that it must fail; good when there are none."""

    name: str
    task: str
    draft: str
    fails: frozenset[str] = frozenset()
    passages: tuple[Passage, ...] = field(default=(), repr=False)


def passages(*texts: str) -> tuple[Passage, ...]:
    return tuple(Passage(f"p{number}", text) for number, text in enumerate(texts))


def fails(*names: str) -> frozenset[str]:
    return frozenset(names)


RUNS_TASK = (
    "Write a short page for operators on what happens to a run in Errata: how its trace events are numbered, what happens "
    "when the client disconnects, which deadline holds, and where finished runs are kept."
)
RUNS = """\
# What happens to a run

A run starts with a call of `Ask` and streams its trace events to the client.

## Trace events

Every event has a sequence number. Numbers start at 1 and leave no gap, so that a client notices a lost event. The last event
is `RunFinished`, and a run has exactly one.

## When the client disconnects

A client that goes away cancels its run. The calls to the other services stop, down to the request at the model, and the run
ends as `CANCELLED`. It stays in the list of runs.

## Deadlines

The deadline of the call is the deadline of the run. Without one, 120 seconds hold. Each call to another service gets what
remains of the time.

## Where runs are kept

Finished runs are kept in the memory of the orchestrator. The newest 1,000 stay, and a restart forgets them all.
"""
RUNS_PASSAGES = passages(
    "`Ask` starts a run and streams its trace events. Sequence numbers start at 1 and have no gaps. The last event is "
    "`RunFinished`, and there is exactly one.",
    "When the client of an `Ask` call disconnects or cancels, its run is cancelled: the calls to retriever, judge and "
    "generator are stopped, down to the model's HTTP request, which is closed. The run ends with the outcome `CANCELLED` and "
    "stays in the list.",
    "The deadline of the call is the deadline of the run; without one, `ORCHESTRATOR_RUN_TIMEOUT_SECONDS` holds, 120 seconds "
    "by default. Each call to another service gets what remains.",
    "Runs and their events live in the orchestrator's memory. The newest 1,000 that have ended are kept "
    "(`ORCHESTRATOR_MAX_FINISHED_RUNS`), and a restart forgets them.",
)
HALF = RUNS[: RUNS.index("The calls to the other")] + "The calls to the other services stop, down to the"
WITHOUT_DEADLINES = RUNS[: RUNS.index("## Deadlines")] + RUNS[RUNS.index("## Where") :]
REPETITIVE = RUNS.replace(
    "It stays in the list of runs.",
    "It stays in the list of runs. A client that goes away cancels its run. It stays in the list of runs. A client that goes "
    "away cancels its run. Numbers start at 1 and leave no gap, so that a client notices a lost event.",
)
FULL_OF_PLACEHOLDERS = RUNS.replace("Without one, 120 seconds hold.", "Without one, [insert default] holds. TODO: check this.")
INVENTED = RUNS.replace(
    "It stays in the list of runs.",
    "It stays in the list of runs. Pass `--keep-alive 300` or set `RUN_GRACE_SECONDS` to 45 to wait.",
)
BREAD = """\
# Sourdough at home

Feed the starter the evening before. It is ready when it has doubled and floats in water.

Mix 500 grams of flour with 350 grams of water, and let the dough rest for an hour. Add salt and fold it four times, half an
hour apart. Shape the loaf, and leave it in the fridge overnight.

Bake it in a hot pot with the lid on for twenty minutes, and without it for twenty more, until the crust is dark.
"""

GUARD_TASK = "Explain in at most 150 words how the guard of the judge works and what a finding does to a verdict."
GUARD = """\
The guard is a check that needs no model. It runs beside the judge, whichever provider grades. It takes every detail of an
answer that can be looked up: numbers, versions, dates, names of options and flags, environment variables, paths, addresses,
code and quoted words. Each of them must occur in at least one passage.

A detail that no passage has is a finding. A finding lowers the verdict of the claim in which it stands: what the judge called
supported becomes unsupported. It never works the other way, so that the guard can't make a claim better than the judge saw
it. An answer with a finding is not released.
"""
GUARD_LONG = GUARD + (
    "\nThe guard was written because a model that grades is easily taken in by a plausible figure. A judge reads for meaning, "
    "and a wrong port number means much the same as the right one. Looking a number up is dull work, and dull work is what "
    "code does well. The guard looks at every answer, also at those that the judge found faultless, and its work takes a few "
    "milliseconds. It compares without case and without the typography of quotes, so that a dash more or less is no finding, "
    "and it knows that an hour has sixty minutes.\n"
)

BACKUP_TASK = "Write an introduction to Milvus Backup: its prerequisites, how it makes a backup, and how it restores one."
BACKUP = """\
Milvus Backup is a tool that backs up the data of a Milvus instance and restores it. It can be called from the command line,
over an HTTP API, or from Go.

Before you start, make sure of two prerequisites. The machine must run CentOS 7.5 or Ubuntu 18.04, or something newer. Go must
be installed in version 1.20.2 or later.

To make a backup, the tool reads the metadata and the segments of the collections from the source instance. It then copies the
data of the collections from the root path of the source to the root path of the backup.

To restore a backup, it creates a new collection in the target instance, from the metadata and the segments that the backup
holds. It then copies the data from the backup's root path to the root path of the target.
"""
BACKUP_TINY = "Milvus Backup backs up and restores data."
BACKUP_ANNOUNCED = """\
This page is about Milvus Backup. It covers the prerequisites, how a backup is made, and how a backup is restored.

Milvus Backup is a popular tool. Many people like it, and it is used in many places. It is a very good tool for Milvus.
"""

CONSISTENCY_TASK = """\
Write a tutorial for new users of Milvus on consistency levels. Cover:
- the four levels
- which level is the default
- how to set the level when a collection is created, with example code
- how to set the level for a search
"""
CONSISTENCY = """\
# Choosing a consistency level in Milvus

A consistency level says how fresh the data must be that a search sees. Fresher data cost time, because Milvus has to wait until
they have arrived.

## The four levels

- **Strong** sees everything that was written before the search began.
- **Bounded** may miss the last few seconds.
- **Session** sees at least what the same client has written.
- **Eventually** sees whatever is there, and is the fastest.

## The default

A collection that was created without a level is set to Bounded. That is a fair choice for most applications.

## Setting the level of a collection

Pass `consistency_level` when you create the collection:

```python
from pymilvus import Collection

collection = Collection(name="books", schema=schema, consistency_level="Strong")
```

## Setting the level for a search

A search may ask for another level, which then holds for this search alone:

```python
results = collection.search(vectors, "embedding", params, limit=3, consistency_level="Eventually")
```

Without one, the search takes the level of the collection.
"""
CONSISTENCY_OPEN = CONSISTENCY[: CONSISTENCY.rindex("```")]
CONSISTENCY_PROSE = "\n\n".join(part for part in CONSISTENCY.replace("```python", "```").split("```")[::2]).replace(
    "`consistency_level`", "the level"
)

CASES = (
    Case("runs", RUNS_TASK, RUNS),
    Case("runs, from passages", RUNS_TASK, RUNS, passages=RUNS_PASSAGES),
    Case("guard", GUARD_TASK, GUARD),
    Case("backup", BACKUP_TASK, BACKUP),
    Case("consistency", CONSISTENCY_TASK, CONSISTENCY),
    Case("off topic", RUNS_TASK, BREAD, fails("relevance", "completeness")),
    Case("half finished", RUNS_TASK, HALF, fails("completeness")),
    Case("a point is missing", RUNS_TASK, WITHOUT_DEADLINES, fails("completeness")),
    Case("repetitive", RUNS_TASK, REPETITIVE, fails("clarity")),
    Case("placeholders", RUNS_TASK, FULL_OF_PLACEHOLDERS, fails("completeness")),
    Case("invented details", RUNS_TASK, INVENTED, fails("technical_quality"), RUNS_PASSAGES),
    Case("about something else in the same words", BACKUP_TASK, CONSISTENCY, fails("relevance", "completeness")),
    Case("too long", GUARD_TASK, GUARD_LONG, fails("relevance")),
    Case("tiny", BACKUP_TASK, BACKUP_TINY, fails("completeness")),
    Case("announced and not done", BACKUP_TASK, BACKUP_ANNOUNCED, fails("completeness")),
    Case("code block left open", CONSISTENCY_TASK, CONSISTENCY_OPEN, fails("technical_quality")),
    Case("no code", CONSISTENCY_TASK, CONSISTENCY_PROSE, fails("technical_quality")),
    Case("wanders off", RUNS_TASK, RUNS + BREAD, fails("relevance")),
)

SEARCH_TASK = (
    "Describe for developers how Errata searches: what hybrid search fuses, which other modes there are, and why no threshold "
    "applies to its scores."
)
SEARCH = """\
Errata searches a collection in two ways at once. One ranking is by embedding and finds passages that mean the same; the other
is by words, with BM25, and finds those that say the same. Hybrid search, the default, fuses the two rankings by reciprocal
rank. [1]

You can have one ranking alone: `--mode dense` takes the embeddings, and `--mode sparse` takes the words. [1]

The score of a hybrid search says at which places a passage stood, not how near it lies to the query. A passage that comes first
in a poor ranking scores as high as one that comes first in a good one. That is why no threshold applies to these scores. [1]
"""
SEARCH_PASSAGES = passages(
    "Hybrid search ranks passages by embedding and by words (BM25), and fuses both rankings by reciprocal rank. `--mode dense` "
    "and `--mode sparse` use one of them. Scores of a hybrid search are ranks; no threshold applies to them. Metadata filters "
    "hold in every ranking.",
)
SEARCH_WRONG = SEARCH.replace("with BM25", "with TF-IDF and a boost of 2.5").replace("`--mode sparse`", "`--mode keyword`")
SEARCH_OPINIONS = """\
Search is the heart of every product that answers questions. The best teams treat search as a craft, and Errata searches with
the same care. A customer who finds nothing leaves and never comes back, so that hybrid search pays for itself within a month.

Modern embedding models learned from billions of web pages. They know synonyms, and they forgive spelling mistakes. Other modes
were popular in the nineties, when memory was scarce, and a threshold was tuned by hand. Google was founded in 1998.
"""

SHUTDOWN_TASK = (
    "Write a runbook section on shutting Errata down. Include: what a service does on SIGTERM; which settings hold the times."
)
SHUTDOWN = """\
## Shutting down

Send SIGTERM to a service to stop it. It then goes through four steps:

1. It answers health checks with NOT_SERVING.
2. It waits half a second, so that clients notice. `ERRATA_DRAIN_PAUSE_SECONDS` sets this time.
3. It takes no new calls, and lets those under way finish for up to 25 seconds. `ERRATA_DRAIN_GRACE_SECONDS` sets this time.
4. It stops.
"""
SHUTDOWN_SKELETON = """\
## Shutting down

### What a service does on SIGTERM

### Which settings hold the times

- `ERRATA_DRAIN_PAUSE_SECONDS`
-
-
"""
SHUTDOWN_RAMBLING = (
    "When a service of Errata is told to shut down by means of SIGTERM, which is a signal that the operating system "
    "or the orchestration platform or a person at a keyboard may send and which is distinct from SIGKILL in that it "
    "can be handled, the service will, before it does anything else and in order that clients which balance their "
    "load notice in time, begin to say NOT_SERVING, and it will thereafter wait for a time that one of the settings "
    "holds, namely the pause, and will then, having waited, take no new calls while those that are under way are "
    "given the chance to finish within another time that the other setting holds, namely the grace, whereupon it "
    "stops.\n"
)

PARTITION_TASK = (
    "Write a how-to on partition keys in Milvus: what a partition key is good for, how to enable it with code, and "
    "how to filter by it in a search."
)
PARTITION = """\
# Using a partition key

## What it is good for

A partition key is a field by whose value Milvus spreads entities over partitions. Entities with the same value stand together.
A search that filters by the key skips all partitions that can't hold a match, and is faster for it. Tenants are a typical key.

## Enabling it

Name the field when you create the schema:

```python
schema = MilvusClient.create_schema(auto_id=False, partition_key_field="tenant", num_partitions=64)
schema.add_field(field_name="tenant", datatype=DataType.VARCHAR, max_length=512)
```

`num_partitions` says how many partitions there are; 64 is the default and rarely needs changing.

## Filtering by the key

Give the key in the filter of a search:

```python
client.search("books", data=[vector], filter='tenant == "acme"', limit=3)
```
"""
OUTLINE = """\
# Partition keys in Milvus

This outline names what the task asks for. It states nothing about its points.

- What a partition key is good for
- How to enable it with code
- How to filter by it in a search
"""

AFTERWARDS = (
    Case("search", SEARCH_TASK, SEARCH, passages=SEARCH_PASSAGES),
    Case("shutdown", SHUTDOWN_TASK, SHUTDOWN),
    Case("partition key", PARTITION_TASK, PARTITION),
    Case("wrong names and figures", SEARCH_TASK, SEARCH_WRONG, fails("technical_quality"), SEARCH_PASSAGES),
    Case("opinions on the subject", SEARCH_TASK, SEARCH_OPINIONS, fails("completeness", "technical_quality"), SEARCH_PASSAGES),
    Case("skeleton", SHUTDOWN_TASK, SHUTDOWN_SKELETON, fails("completeness")),
    Case("one endless sentence", SHUTDOWN_TASK, SHUTDOWN_RAMBLING, fails("clarity")),
    Case("last section missing", PARTITION_TASK, PARTITION[: PARTITION.index("## Filtering")], fails("completeness")),
    Case(
        "cut in the code", PARTITION_TASK, PARTITION[: PARTITION.index(", limit")], fails("technical_quality", "completeness")
    ),
    Case("another page of the same product", PARTITION_TASK, BACKUP, fails("relevance", "completeness")),
    Case("an outline", PARTITION_TASK, OUTLINE, fails("completeness")),
    Case("the task itself", PARTITION_TASK, PARTITION_TASK, fails("completeness")),
)


@cache
def reviewer() -> DraftReviewer:
    return DraftReviewer(OfflineProvider(MiniLM()))


@pytest.mark.parametrize("case", CASES + AFTERWARDS, ids=lambda case: case.name)
async def test_good_drafts_pass_and_poor_ones_fail_where_they_should(case: Case) -> None:
    asked = ReviewTask(case.task, case.draft, DEFAULT_CRITERIA, 0.85, case.passages)
    review = (await reviewer().review(asked)).review
    short = {item.criterion for item in review.shortfalls}
    if case.fails:
        assert case.fails <= short, review
        assert review.suggestions and review.issues
    else:
        assert review.decision is ReviewDecision.APPROVE, review


@pytest.mark.parametrize(
    ("description", "met"),
    [
        ("It says what becomes of the run when the client goes away.", True),
        ("It names the deadline that holds without one of the caller's.", True),
        ("It explains how to bake bread.", False),
        ("It compares the price with that of other products.", False),
    ],
)
async def test_an_own_criterion_about_the_content_can_be_met_and_missed(description: str, met: bool) -> None:
    asked = ReviewTask(RUNS_TASK, RUNS, (Criterion("own", description),), 0.0)
    [score] = (await reviewer().review(asked)).review.scores
    assert (score.score >= score.threshold) is met, score
