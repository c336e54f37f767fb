"""Broadening by rule: noise goes first, then words, and no query comes twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.drafting.broaden_rules import broaden, normalised

NOISY_WORDS = ("how", "do", "I", "in", "LangChain", "0.3.14", "with", "Python", "v2", ",", "?", "please", "set", "max_retries")


def all_queries(question: str) -> list[str]:
    tried = [question]
    while (query := broaden(question, tried[-1], tried)) is not None:
        tried.append(query)
        assert len(tried) < 20
    return tried[1:]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("In LangChain 0.3.14 with Python 3.12, how do I set the threshold?", "set the threshold"),
        ("Using Spring Boot 3.2.1, where are runs stored?", "where are runs stored"),
        ("ok, thanks! How do I resume a run, please?", "resume a run"),
        ("Requirements for upgrading to MySQL version 8", "Requirements for upgrading to MySQL"),
        ("How do I start the stack on Kubernetes 1.31 in my Django app?", "start the stack on Kubernetes"),
        ("Can I install it on Windows?", "install Windows"),
        (
            "With langchain-openai 1.7.4 on openai 3.57 and Python 3.11, where are runs stored?",
            "where are runs stored",
        ),
        (
            "In our LangGraph 1.2 app with psycopg 3.3 and qdrant-client 1.20, what ends a run?",
            "what ends a run",
        ),
        ("How do I set a timeout in Milvus 2.4.1?", "set a timeout in Milvus"),
    ],
)
def test_noise_goes_first(question: str, first: str) -> None:
    assert all_queries(question)[0] == first


def test_what_is_asked_about_stays() -> None:
    assert all(query != "" for query in all_queries("Does it support Python?"))
    assert "Python" in all_queries("Does it support Python?")[-1]
    assert "400" in all_queries("what does 400 error code mean?")[0]


def test_queries_narrow_to_key_words() -> None:
    queries = all_queries("How do I set nlist and nprobe for the IVF_FLAT index in Milvus 2.4.1?")
    assert queries[-1] == "IVF_FLAT"
    lengths = [len(query.split()) for query in queries]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("talk", ["ok", "thanks", "", "?"])
def test_nothing_to_broaden_is_said_so(talk: str) -> None:
    assert broaden(talk, talk, [talk]) is None


def test_a_query_that_differs_only_in_case_and_punctuation_is_the_same() -> None:
    first = all_queries("How do I resume a run?")[0]
    assert broaden("How do I resume a run?", "x", [f" {first.upper()}?! "]) != first


@settings(max_examples=200, deadline=None)
@given(
    question=st.one_of(
        st.text(max_size=300),
        st.lists(
            st.sampled_from(NOISY_WORDS),
            max_size=25,
        ).map(" ".join),
    ),
    tried=st.lists(st.text(max_size=30), max_size=5),
)
def test_it_ends_and_never_repeats(question: str, tried: list[str]) -> None:
    seen = {normalised(query) for query in (question, *tried)}
    queries, current = list(tried), question
    for _ in range(20):
        query = broaden(question, current, queries)
        if query is None:
            return
        assert normalised(query) not in seen
        assert query.strip()
        seen.add(normalised(query))
        queries.append(query)
        current = query
    raise AssertionError("broadening did not end")
