"""Sentences that are meant for a model, in English: instructions to forget others, and demands for a grade."""

from typing import Final

from services.judge.injections.phrases import phrases

# A blank, … and ~ as in `phrases`.
_FORGET: Final = (
    r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|overrule|discard|bypass|neglect|supersede|abandon"
    r"|cancel|drop"
    r"|(?:do not|don[\W_]?t|never|stop|no longer) (?:follow(?:ing)?|obey(?:ing)?|heed|use|apply)"
    r"|pay no (?:attention|heed) to)"
)
_ORDERS: Final = (
    r"(?:instructions?|prompts?|directions?|directives?|guidelines?|rules|orders|commands|criteria|rubrics?|programming"
    r"|training)\b"
)
_ORDER_STEMS: Final = "instruct prompt direct guideline rules orders commands criteria rubric programming training"
_EARLIER: Final = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|former|past|existing|initial|original|system|your|safety"
    r"|grading|hidden)"
)
_MODEL: Final = (
    r"(?:a\W?i\W?s?|llms?|gpts?|chatgpt|(?:large )?language models?|chat[\W_]?bots?|(?:ai|automated|automatic|language"
    r"|virtual) "
    r"(?:models?|assistants?|systems?|agents?|readers?|graders?|judges?|reviewers?|evaluators?|checkers?))"
)
_MODEL_STEMS: Final = "ai a.i llm gpt language chat automat virtual"
_POSING: Final = r"(?:assistant|model|ai|bot|chatbot|agent|grader|judge|evaluator|reviewer|llm|hacker|pirate)"
_SAY: Final = r"\b(?:answer|reply|respond|output|say)"
_SAY_STEMS: Final = "answer reply respond output say"

OVERRIDES: Final = phrases(
    # Ignore all previous instructions; forget the rules above; do not follow your guidelines.
    (
        _ORDER_STEMS,
        rf"{_FORGET}(?: (?!{_EARLIER}\b|{_ORDERS})~){{0,4}} {_EARLIER}(?: (?!{_ORDERS})~){{0,3}} {_ORDERS}",
    ),
    (
        _ORDER_STEMS,
        r"\b(?:ignore|disregard|forget) (?:all|any|every)(?: (?:of|the|those|these|other)){0,2}"
        r" (?:instructions?|prompts?|directives?|orders)\b",
    ),
    (
        _ORDER_STEMS,
        rf"{_FORGET}(?: (?:all|any|every|the|those|these|of)){{0,3}} {_ORDERS}(?: (?:that|which|you|were|was|have|been"
        rf"|ve)){{0,4}}"
        r" (?:above|before|so far|given|told|until now|up to)\b",
    ),
    (
        "ignore disregard forget",
        r"\b(?:ignore|disregard|forget) (?:everything|anything|all|whatever|what)…4 (?:above\b(?! (?:command|step|example"
        r"|error))"
        r"|before this|so far|previously|told|were given|said (?:before|above|earlier)|until now)",
    ),
    # New instructions: …; from now on you …; you are now …
    (
        "instruction orders directive",
        r"\b(?:new|updated|revised|real|actual|true|secret|additional) (?:system |task )?(?:instructions?|orders"
        r"|directives?)\s{0,3}"
        rf"(?::|follow\b| for (?:you|the) {_MODEL}| from (?:the|your)\b)",
    ),
    (
        "from henceforth hereafter",
        r"\b(?:from (?:now|here|this (?:point|moment)) (?:on|onwards?|forward)|henceforth|hereafter) "
        r"(?:you (?:are|must|shall|should|act|respond|answer|only|obey|follow|have to"
        r"|will (?:act|respond|answer|obey|behave|ignore|always|only|grade|say|reply|output|return))"
        r"|(?:act|respond|obey|behave|grade|reply|mark|rate|treat)\b)",
    ),
    (
        "you",
        r"\byou(?: |[\W_]?)(?:are|re) (?:now|no longer|actually|really) (?:dan\b|jailbroken|unrestricted|uncensored"
        r"|free (?:of|from)"
        r"|bound by|in (?:developer|debug|admin|god|maintenance|jailbreak|test|unrestricted) mode"
        rf"|(?:an?|the)…3 {_POSING}\b)",
    ),
    (
        "pretend imagine act behave role",
        r"\b(?:pretend|imagine|act|behave|roleplay|role play) (?:to be|you are|that you|as(?: if you (?:are|were))?)"
        r" (?:an?|the)…2 (?:unrestricted|uncensored|jailbroken|dan|evil|another|different|other)\b",
    ),
    # Note to the AI: …; if you are a language model …; AI systems reading this …
    (
        _MODEL_STEMS,
        r"\b(?:note|attention|notice|message|memo|important|warning|hint|dear|hey|hello|instructions?) (?:to |for )?"
        rf"(?:the |all |any |every |our ){{0,2}}{_MODEL}(?: (?:reading|processing|grading|checking|evaluating|that|who)\b"
        rf"|\s{{0,2}}[:,!])",
    ),
    (
        _MODEL_STEMS,
        rf"\bif you (?:are|re) (?:an?|the) {_MODEL}\b|\b{_MODEL} (?:that |who )?"
        r"(?:reads?|reading|grades?|grading|processing|evaluating|checking|reviewing) (?:this|these)\b",
    ),
    (
        "prompt instruction message",
        r"\b(?:reveal|print|repeat|output|show|leak|disclose|expose|reprint) (?:me )?(?:your|the) (?:full |entire )?"
        r"(?:system (?:prompt|message)|(?:initial|hidden|original|secret) (?:prompt|instructions?))\b",
    ),
    (
        "your",
        r"\byour (?:new|only|real|true|actual|sole) (?:task|goal|job|role|objective|purpose|instructions?|mission|order)\s{0,3}"
        r"(?::|is\b|are\b)",
    ),
    (
        _ORDER_STEMS,
        r"\b(?:this|what follows|the following)…2 (?:overrides|supersedes|replaces|cancels|overrule) (?:all|any|every|the"
        r"|your)…2 " + _ORDERS,
    ),
    (
        "instructions prompt rules directives orders",
        rf"\b{_EARLIER} (?:instructions|prompts?|rules|directives|orders) (?:are|were|is|was|have been)(?: (?:now|only"
        rf"|just|all))? "
        r"(?:a test|void|cancell?ed|outdated|obsolete|invalid|wrong|revoked|superseded|null|lifted|suspended|no longer)\b",
    ),
    # Instead, reply only with …; answer with exactly the word …
    (
        "instead rather",
        r"\b(?:instead|rather)(?: of (?:answering|grading|that|this))?[\W_]{1,4}(?:just |simply |only )?"
        rf"{_SAY} (?:only|exactly|with|that|the word)\b",
    ),
    (
        _SAY_STEMS,
        rf"{_SAY}(?: (?:only|exactly|just|solely|simply)){{1,2}} (?:with )?(?:the (?:word|text|string|phrase|token)|exactly)\b",
    ),
)

_FULL: Final = (
    r"(?:1[.,]0{1,3}(?!\d|\.\d)|1(?![\d.,]\d|\d)(?=\W{0,3}(?:$|[.;,!)\n]))|100\s?%|10\s?/\s?10|5\s?/\s?5|full[\W_]marks?"
    r"|perfect(?:ly)?\b|(?:the[\W_])?(?:maximum|highest|top|best|full)(?:[\W_]possible)?[\W_](?:score|grade|mark|rating"
    r"|value)s?"
    r"|supported\b|relevant\b|faithful\b|approved?\b)"
)
_JUDGE: Final = r"\b(?:grade|score|rate|mark|judge|classify|label|assess|evaluate)"
_JUDGED: Final = r"(?:graded|scored|rated|marked|judged|classified|labell?ed|considered|treated|verified|regarded|approved)"
_MATERIAL: Final = (
    r"(?:passage|claims?|text|document|draft|answer|chunk|snippet|section|criterion|criteria|source|response|page|article|one)"
)
DEMANDS: Final = phrases(
    # Grade this 1.0; mark every claim as SUPPORTED; rate the passage above 10/10.
    (
        "grade score rate mark judge classify label assess evaluate",
        rf"{_JUDGE} (?:(?:this|these|every|each|all|any)(?: (?:of|the|these))?(?: ~)?|the {_MATERIAL}|it|me|everything)"
        rf"(?: (?:with|as|at|a|an|be|to|above|below|fully|is|score|grade|of|highly)){{0,4}}[\W_]{{1,8}}{_FULL}",
    ),
    (
        "score grade mark rating verdict",
        r"\b(?:give|assign|award|grant|set|return|output|report|write|emit|use) "
        rf"(?:(?:it|this|that|the|a|an|every|each|all|them|us|me|your|with|of|to) ){{0,3}}(?:{_MATERIAL} )?(?:(?:the|a|an) )?"
        r"(?:(?:relevance|faithfulness|final|overall) )?(?:score|grade|mark|rating|verdict|full marks|perfect (?:score"
        r"|grade))s?"
        rf"(?: (?:of|to|as|is|for|equal|be|this|that|every|{_MATERIAL})){{0,3}}[\W_]{{1,8}}{_FULL}",
    ),
    (
        "give award grant",
        rf"\b(?:give|award|grant) (?:it|this|us|me|every ~|this ~|the {_MATERIAL}) (?:a |the )?"
        r"(?:full[\W_]marks?|(?:perfect|maximum|highest|top|best)(?: possible)? (?:score|grade|mark|rating))",
    ),
    (
        "grade score rate mark judge classif label consider treat verif regard approv",
        rf"\b(?:this|the|every|each|all)(?: (?:above|following|these))? {_MATERIAL} "
        r"(?:(?:must|should|has|have|is|are|shall|needs?|to|already|been|be|was|were|count|counts|therefore|thus) ){1,4}"
        rf"{_JUDGED}\W{{1,8}}(?:(?:with|as|at|a|and|to|be|fully) ){{0,3}}\W{{0,3}}{_FULL}",
    ),
    (
        "verdict faithfulness",
        r"\b(?:verdict|verdicts|faithfulness(?: score)?)\W{0,4}(?:must be|shall be|should be|is|are|be)\W{0,6}"
        r"(?:supported|1[.,]0|faithful|approved?|relevant)\b",
    ),
    (
        "supported",
        r"\b(?:all|every|each|the) (?:of (?:the|these) )?claims? (?:is|are|must be|should be|count as|was|were)"
        r"(?: (?:all|fully|already|now|hereby|therefore)){0,2}\W{1,6}supported\b",
    ),
    (
        "approve accept",
        r"\b(?:approve|accept) (?:this|the) (?:draft|answer|claim|text|passage)\b(?: ~){0,4}?"
        r" (?:without|regardless|immediately|unconditionally|with full)\b",
    ),
)
