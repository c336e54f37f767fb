"""What a question is about, once politeness, versions and the asker's own tools are taken away.

The judge grades passages against this core and the generator broadens queries towards it, so both must see
the same one. Everything here is a rule over the text: no model, no network, linear time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal

from errata_kit.text.terms import content_terms

Shape = Literal["how_to", "definition", "yes_no", "fact", "topic"]

_PRE: Final = r"(?:[-.]?(?:rc|alpha|beta|post|dev)[-.]?\d*)"
_VERSION: Final = rf"(?:v?\d+(?:\.(?:\d+|x))+{_PRE}?\+?|v\d+{_PRE}?)"
_VERSION_PHRASE: Final = re.compile(
    r"\(?\b(?:versions?|release|ver\.?)\s+v?\d+(?:\.(?:\d+|x))*\b\)?"
    rf"|(?<![\w.=/$€£#-])\(?{_VERSION}\)?(?![\w%/°]|\.\d|\s*(?:%|percent|million|billion|thousand|"
    rf"[kKMGT]i?B\b))",
    re.IGNORECASE,
)
# Tools that people name to say where they stand. A name outside this list is noise only beside a version
# number.
FRAMEWORKS: Final = frozenset(
    [
        "airflow",
        "angular",
        "anthropic",
        "autogen",
        "bun",
        "celery",
        "chatgpt",
        "claude",
        "conda",
        "crewai",
        "dart",
        "deno",
        "django",
        "dspy",
        "elixir",
        "express",
        "fastapi",
        "flask",
        "flutter",
        "gin",
        "go",
        "golang",
        "gunicorn",
        "haskell",
        "haystack",
        "huggingface",
        "java",
        "javascript",
        "jupyter",
        "kotlin",
        "langchain",
        "langgraph",
        "langsmith",
        "laravel",
        "llamaindex",
        "nestjs",
        "next.js",
        "nextjs",
        "node",
        "node.js",
        "nodejs",
        "numpy",
        "ollama",
        "openai",
        "pandas",
        "php",
        "poetry",
        "pycharm",
        "pydantic",
        "pytest",
        "python",
        "pytorch",
        "quarkus",
        "rails",
        "react",
        "ruby",
        "rust",
        "scala",
        "semantic-kernel",
        "sklearn",
        "spring",
        "springboot",
        "streamlit",
        "svelte",
        "swift",
        "tensorflow",
        "transformers",
        "typescript",
        "uv",
        "uvicorn",
        "vllm",
        "vscode",
        "vue",
    ]
)
# Where something runs usually changes the answer ("install it on Windows"), so only the version beside these
# is noise.
PLATFORMS: Final = frozenset(
    [
        "android",
        "aws",
        "azure",
        "centos",
        "debian",
        "docker",
        "fedora",
        "gcp",
        "helm",
        "ios",
        "k8s",
        "kubernetes",
        "linux",
        "macos",
        "openshift",
        "podman",
        "redhat",
        "terraform",
        "ubuntu",
        "windows",
        "wsl",
    ]
)
_NAME: Final = r"[A-Za-z][\w+#-]*(?:\.(?:js|net|py|io))?"
_ADJUNCT: Final = re.compile(
    r"(?:,\s*)?\b(?P<link>(?i:in|with|when using|using|under|for|from|via|inside|within|through|and|plus|"
    r"running|on))\s+"
    r"(?:the\s+|an?\s+|my\s+|our\s+)?"
    rf"(?P<name>{_NAME}(?:\s(?=[A-Z]){_NAME})?)"
    rf"(?P<version>\s+(?:versions?\s+)?(?:{_VERSION}|\d{{1,2}}\b))?"
    r"(?P<tail>\s+(?:app|application|project|setup|environment|codebase))?"
    r"(?![\w-])\s*,?",
)
_PREFACE: Final = re.compile(
    r"^(?:\W*(?:ok(?:ay)?|hi|hello|hey|thanks|thank you|thx|sorry|oops|no worries|don't worry|nice|great|"
    r"cool|wow|well|so|"
    r"and|but|no|yes|then|wait(?: a (?:second|minute))?|by the way|btw|please|"
    r"i see)\b[\s,.!:;?-]+)+",
    re.IGNORECASE,
)
_MORE: Final = r"(?: (?:some more|more|a little bit|some(?: basic)? information|how to))?"
_ASKING: Final = re.compile(
    r"^(?:(?:can|could|would|will) (?:you|someone|anyone|we)(?: please)? (?:briefly |also )?"
    rf"(?:tell me|explain|show me|give me|describe|summari[sz]e|help me(?: to)?|provide|"
    rf"outline){_MORE}(?: (?:about|on|into))?|"
    rf"(?:please )?(?:tell me|explain|show me|describe){_MORE}(?: about)?|"
    r"i (?:meant|mean|asked|heard(?: that)?|guess|want to know|would like to know|need to know|"
    r"am trying to understand)|"
    r"(?:do you|does anyone) (?:know|think(?: that)?)(?: if)?|trying to understand if|is there (?:a|"
    r"any) way to|"
    r"what is the (?:best |right |correct |recommended )?way to|how (?:do|can|could|should|would) (?:i|we|"
    r"you|one)|how to)"
    r"\b[\s,:]*",
    re.IGNORECASE,
)
_POLITE: Final = re.compile(
    r"[\s,]*\b(?:please|pls|plz|thanks|thank you|exactly|actually|basically|just|simply)\b(?=[\s,.?!]|$)",
    re.IGNORECASE,
)
_SPACES: Final = re.compile(r"\s+")
_SPACE_BEFORE_STOP: Final = re.compile(r"\s+([,.;:?!])")

# "Can you tell me how to": ways of asking stand in layers, hardly more than these.
_LAYERS: Final = 4
# Words that nearly every question could have: they say how something is asked, not what it is about.
_GENERIC: Final = """
    able allow answer anyone anything apply ask available basic best better bit call can cause change choose
    come consider create define describe detail difference different do example exact exist explain find
    form general get give go good happen have help include info information intended involve kind know leave
    let like list long look lot main make many matter mean meant much name need new number one other part
    people please possible problem provide reason recommend require say see service set show something start
    step still support sure take tell thing think time tip total try type use used user using usual various
    want way week well wonder work would year
"""
_SMALL_TALK: Final = "ok okay hi hello hey thank thanks thx sorry yes yeah great nice cool wow bye good welcome"
_YES_NO: Final = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have|had|am|may|must)\b", re.IGNORECASE
)
_HOW_TO: Final = re.compile(
    r"\bhow (?:do|can|could|should|would|to|is it|are)\b|\bsteps?\b|\bset ?up\b|\bconfigure\b|\binstall\b|"
    r"\bway to\b",
    re.IGNORECASE,
)
_DEFINITION: Final = re.compile(
    r"^(?:what(?:'s| is| are| was| were)|define|who (?:is|was|are)|meaning of)\b"
    r"(?!.*\b(?:should|when|best|required|happen)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question taken apart. `core` is what is left of `text`; `terms` are the core's distinct content
    terms, in order.

    `key_terms` are the terms that say what the question is about: not generic, and empty for "Can you show an
    example?".
    """

    text: str
    core: str
    shape: Shape
    terms: tuple[str, ...]
    key_terms: tuple[str, ...]


@lru_cache(maxsize=256)
def read_question(text: str) -> Question:
    """Take a question apart. Deterministic; the core is never empty unless the text is blank."""
    core = core_question(text)
    terms = tuple(dict.fromkeys(content_terms(core)))
    return Question(text, core, _shape(core), terms, tuple(term for term in terms if term not in generic_terms()))


def core_question(text: str) -> str:
    """Return the question without small talk, versions and adjuncts that only name the asker's tools."""
    spoken = strip_small_talk(text)
    plain = tidy(strip_versions(strip_adjuncts(spoken)))
    return plain if content_terms(plain) or not content_terms(spoken) else spoken


def strip_small_talk(text: str) -> str:
    """Remove openings ("ok, thanks!") and "please" and the like; "how do I" stays. Never returns less than
    one word.
    """
    current = _SPACES.sub(" ", text).strip()
    shorter = _PREFACE.sub("", current)
    current = shorter if content_terms(shorter) else current
    return tidy(_POLITE.sub("", current)) or current


def strip_asking(text: str) -> str:
    """Remove the words that ask ("can you tell me about", "how do I") from the front of a question."""
    current = text.strip()
    for _ in range(_LAYERS):
        shorter = _ASKING.sub("", _PREFACE.sub("", current)).strip()
        current = shorter if content_terms(shorter) else current
    return tidy(current.rstrip("?!. "))


def strip_versions(text: str) -> str:
    """Remove version numbers ("0.3.14", "v2", "version 8"); other numbers ("400", "1%") stay."""
    return tidy(_VERSION_PHRASE.sub(" ", text))


def strip_adjuncts(text: str) -> str:
    """Remove "in LangChain 0.3.14", "with Python" and the like.

    Noise is a known framework after a preposition, and, at the beginning or in one row with such, any
    name that carries a version. Subjects and objects stay ("Does it support Python?").
    """
    removed_to = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal removed_to
        words = match["name"].lower().split()
        if PLATFORMS.intersection(words):
            return match[0]
        in_row = not text[removed_to : match.start()].strip(" ,")
        known = all(FRAMEWORKS.intersection((word, *word.split("-"))) for word in words)
        versioned = match["version"] is not None and ("." in match["version"] or match["name"][0].isupper())
        if not (known or (versioned and in_row)) or (match["link"] in ("and", "plus") and not in_row):
            return match[0]
        removed_to = match.end()
        return " "

    return tidy(_ADJUNCT.sub(replace, text))


def tidy(text: str) -> str:
    """Collapse blanks and drop punctuation that a removal left hanging."""
    current = _SPACE_BEFORE_STOP.sub(r"\1", _SPACES.sub(" ", text))
    current = re.sub(r"\(\s*\)", "", current)
    current = re.sub(r"([,;:])(?:\s*[,;:])+", r"\1", current)
    current = re.sub(r"[,;:]\s*([?.!])", r"\1", current)
    return current.strip(" ,;:-").strip()


def _shape(core: str) -> Shape:
    asked = strip_small_talk(core)
    if _HOW_TO.search(asked):
        return "how_to"
    if _DEFINITION.match(asked) and len(content_terms(asked)) <= 5:
        return "definition"
    if _YES_NO.match(asked):
        return "yes_no"
    first = asked.split(maxsplit=1)[0].lower().strip(",.?'") if asked else ""
    if first in {"what", "when", "where", "who", "which", "why", "how"} or asked.endswith("?"):
        return "fact"
    return "topic"


@cache
def generic_terms() -> frozenset[str]:
    """Return the terms that nearly every question could have, so that naming them proves nothing."""
    return frozenset(content_terms(_GENERIC))


def is_small_talk(terms: Iterable[str]) -> bool:
    """Whether terms are all of greetings, thanks and the like; also when there are none."""
    return _small_talk().issuperset(terms)


@cache
def _small_talk() -> frozenset[str]:
    return frozenset(content_terms(_SMALL_TALK))
