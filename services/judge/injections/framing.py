"""ROLE and FENCE: text that poses as another message of the conversation, or as the end of its own enclosure."""

import re
from typing import Final

from services.judge.injections.views import without_code

# Tokens by which chat templates part messages. Nobody writes them in prose.
_TOKENS: Final = re.compile(
    r"<\|(?:im_start|im_end|im_sep|system|user|assistant|end|endoftext|eot_id|start_header_id|end_header_id|begin_of_text"
    r"|end_of_text"
    r"|start|message|channel|developer|tool)\|>|\[/?inst\]|<</?sys>>|</?(?:start|end)_of_turn>|\[/?system_prompt\]"
)
_BANNER: Final = re.compile(
    r"\b(?:begin|start|end)[ _-](?:of[ _-])?(?:the[ _-])?(?:(?:new|real|actual)[ _-])?(?:system|admin|administrator"
    r"|developer|operator)[ _-]"
    r"(?:prompt|message|instructions?|override|mode)\b"
    r"|(?:^|[\n\[({*#=>-])[ \t]{0,8}\W{0,4}(?:system|admin|administrator|developer|operator|root|security)[ _-]"
    r"(?:message|prompt|override|instructions?|note|notice|directive|update|alert|command)\W{0,4}(?::|\]|\n|-{1,3}|—)"
    r"|[\[(](?:system|sys|assistant|developer)[\])]\W{0,4}[a-z]"
    r"|<(?:system|assistant|developer)(?:[_-](?:message|prompt|instructions?|note))?\s{0,4}>"
)
_HEADED: Final = re.compile(
    r"(?:^|\n)[ \t>]{0,8}#{2,4}[ \t]{0,4}(?:system|instruction|assistant|human|user|response)[ \t]{0,4}:"
)
# A line that a speaker opens: System: …, **Assistant** : …
_SPEAKER: Final = re.compile(
    r"(?:^|\n)[ \t>*_#-]{0,8}(?P<role>system|assistant|human|user|developer"
    r"|ai)[ \t*_]{0,4}(?:\((?:[^()\n]{0,40})\))?[ \t*_]{0,4}:[ \t*_]{0,4}(?P<said>[^\n]{0,400})"
)
_TO_A_MODEL: Final = re.compile(
    r"\b(?:you (?:are|must|will|should|have|may|can|shall)|your (?:task|job|role|answer|instructions?|verdict|output)"
    r"|ignore|disregard|respond|reply|answer|grade|score|verdict"
    r"|supported|passage|claims?|instructions?|prompt|assistant|override|authori[sz]ed|verified|approved|policy|mode)\b"
)
_JSON: Final = re.compile(
    r"[\"']role\\?[\"']\s{0,8}:\s{0,8}\\?[\"'](?P<role>system|developer|assistant|tool"
    r"|user)\\?[\"']\s{0,8},\s{0,8}\\?[\"']content\\?[\"']"
)
_LABELS: Final = (
    r"(?:passage|question|claim|claims|answer|draft|task|criterion|criteria|feedback|suggestion|issue|query|sentence"
    r"|failing|material|untrusted|untrusted[ _-]\w{1,16})"
)
_FENCE: Final = re.compile(
    # Our own form, or one that is near it: <<<label | number>>>, <<<end label>>>.
    r"(?<!<)<{2,}+\s{0,4}(?:end\s[^<>\n]{0,140}|[^<>\n|]{1,140}\|\s{0,4}[0-9a-fx*?-]{1,80}\s{0,4}|/?"
    + _LABELS
    + r"\b[^<>\n]{0,140})>{2,16}"
    r"|(?<!<)<{3,}+\s{0,4}(?:end|/)\s{0,4}(?:of\s)?" + _LABELS + r"\b"
)
# Ends of enclosures as others write them.
_END: Final = re.compile(
    r"</" + _LABELS + r"s?\s{0,4}>"
    r"|(?<![-=*#_~<\[])[-=*#_~<\[]{2,}+\s{0,4}(?:end|finish)(?:\s(?:of(?:\sthe)?))?[\s_-]"
    + _LABELS
    + r"s?\b[^\n]{0,40}?[-=*#_~>\]]{2}"
    r"|\[/?(?:end|begin)[ _-](?:of[ _-](?:the[ _-])?)?" + _LABELS + r"s?\]"
)


def poses_as_a_role(folded: str, instructs: bool) -> bool:
    """Whether a text poses as another message.

    Documentation of language models shows chat templates and API calls. In code they count only when the text also tells its
    reader what to do (`instructs`). In prose the tokens of a template count by themselves; a line such as `System: Linux`
    counts when it speaks to a model, or when another speaker answers; JSON messages count when one is not the user's.
    """
    read = folded if instructs else without_code(folded)
    if _TOKENS.search(read) or _BANNER.search(read) or _HEADED.search(read):
        return True
    if any(match["role"] != "user" for match in _JSON.finditer(read)):
        return True
    said = [match for match in _SPEAKER.finditer(read) if match["said"].strip()]
    roles = {match["role"] for match in said}
    dialogue = {"user", "human"} & roles and {"assistant", "ai", "system"} & roles
    return bool(dialogue) or any(match["role"] != "user" and _TO_A_MODEL.search(match["said"]) for match in said)


def imitates_a_fence(folded: str, instructs: bool) -> bool:
    """Whether a text holds a line like those that enclose material in a prompt.

    Prompt templates in documentation end their parts with tags such as `</question>`. In code, ends of another form than
    ours count only when the text also tells its reader what to do (`instructs`).
    """
    if "<<" in folded and _FENCE.search(folded):
        return True
    return _END.search(folded if instructs else without_code(folded)) is not None
