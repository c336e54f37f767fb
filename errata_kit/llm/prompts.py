"""Prompts as files: versions, placeholders, and fences around text that nobody vouches for."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b, sha256
from importlib import resources

_PLACEHOLDER = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
_SECTION = re.compile(r"^# (System|User)[ \t]*$", re.MULTILINE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.:/#-]{0,127}")


class PromptError(ValueError):
    """A prompt file or its use is wrong: a mistake in the program, never in a request."""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The two messages of one call, and which prompt they come from."""

    name: str
    version: str
    system: str
    user: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file with `${name}` placeholders.

    Attributes:
        name: the file's name without its ending.
        version: the first 12 hexadecimal digits of the SHA-256 of the file's text.
    """

    name: str
    version: str
    system: str
    user: str

    @property
    def placeholders(self) -> frozenset[str]:
        """The names that `render` needs."""
        return frozenset(_PLACEHOLDER.findall(self.system) + _PLACEHOLDER.findall(self.user))

    def render(self, values: Mapping[str, str]) -> RenderedPrompt:
        """Fill in every placeholder; what a value contains is never expanded again.

        Keep what differs between calls out of the system part: providers cache equal beginnings.

        Raises:
            PromptError: when the names in `values` are not exactly the placeholders.
        """
        if values.keys() != self.placeholders:
            missing = sorted(self.placeholders - values.keys())
            surplus = sorted(values.keys() - self.placeholders)
            raise PromptError(f"prompt {self.name}: missing {missing}, not in the prompt {surplus}")
        system, user = (_PLACEHOLDER.sub(lambda found: values[found[1]], part) for part in (self.system, self.user))
        return RenderedPrompt(self.name, self.version, system, user)


def parse_prompt(name: str, text: str) -> Prompt:
    """Read a prompt: a line `# System`, its text, a line `# User`, its text.

    Raises:
        PromptError: when a part is missing, empty or doubled.
    """
    text = text.replace("\r\n", "\n")
    _, *rest = _SECTION.split(text)
    parts = {title: body.strip() for title, body in zip(rest[::2], rest[1::2], strict=True)}
    if rest[::2] != ["System", "User"] or not all(parts.values()):
        raise PromptError(f"prompt {name} needs one '# System' part and one '# User' part after it")
    return Prompt(name, sha256(text.encode()).hexdigest()[:12], parts["System"], parts["User"])


class PromptLibrary:
    """The prompts of one service, by name."""

    def __init__(self, prompts: Mapping[str, Prompt]) -> None:
        self._prompts = dict(prompts)

    @classmethod
    def load(cls, package: str) -> PromptLibrary:
        """Read every `*.md` file of the package's `prompts` folder; call it once, at the start.

        Raises:
            PromptError: when there is no prompt or one is malformed.
        """
        folder = resources.files(package).joinpath("prompts")
        files = sorted((item for item in folder.iterdir() if item.name.endswith(".md")), key=lambda f: f.name)
        prompts = {}
        for item in files:
            name = item.name.removesuffix(".md")
            prompts[name] = parse_prompt(name, item.read_text(encoding="utf-8"))
        if not prompts:
            raise PromptError(f"package {package} has no prompts")
        return cls(prompts)

    def __getitem__(self, name: str) -> Prompt:
        try:
            return self._prompts[name]
        except KeyError:
            raise PromptError(f"no prompt {name!r}; there are {sorted(self._prompts)}") from None

    @property
    def versions(self) -> dict[str, str]:
        """The version of each prompt, by name."""
        return {name: prompt.version for name, prompt in self._prompts.items()}


def new_nonce() -> str:
    """64 random bits in hexadecimal, for the fences of one call."""
    return secrets.token_hex(8)


def nonce_for(*texts: str) -> str:
    """64 bits in hexadecimal for the fences around some texts: the same for the same texts as long as this process lives.

    So prompts about equal material begin with equal words, and the provider's own prompt cache applies. It is as safe as one
    drawn anew: the texts are hashed under a random key that never leaves the process, so that nobody who writes a text can
    compute it (BLAKE2b as a keyed hash, RFC 7693). Who learns one, from a model that repeats its prompt for example, and writes
    it into a text, has by that changed the texts and with them the nonce; where the text is not one of these texts, `fence`
    takes the nonce out of it.
    """
    digest = blake2b(key=_process_key(), digest_size=8)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        # The length stands first, so that ("ab", "c") and ("a", "bc") differ.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


@cache
def _process_key() -> bytes:
    return secrets.token_bytes(32)


def fence(label: str, text: str, nonce: str) -> str:
    """Enclose untrusted text so that it can't end its own enclosure.

    The closing line carries the nonce, which the text's author can't know; should it occur in the text
    regardless, it is replaced by a word that can't be joined into it again.

    Args:
        label: what the text is, such as `passage 3`; at most 128 letters, digits, spaces and `_.:/#-`.
        text: anything.
        nonce: from `new_nonce` or `nonce_for`, the same for all fences of one call.

    Raises:
        PromptError: when the label or the nonce could itself break a fence.
    """
    if not _LABEL.fullmatch(label) or not re.fullmatch(r"[0-9a-f]{8,}", nonce):
        raise PromptError("a fence needs a plain label and a hexadecimal nonce of 8 or more digits")
    inert = re.sub(re.escape(nonce), "[removed]", text, flags=re.IGNORECASE)
    return f"<<<{label} | {nonce}>>>\n{inert}\n<<<end {label} | {nonce}>>>"
