"""The same in other languages. Latin scripts are written without accents, as the folded view has them."""

from typing import Final

from services.judge.injections.phrases import phrases

# A blank and … as in `phrases`. One is the best grade.
_ONE: Final = r"(?:1[.,]0{1,2}|100\s?%|10\s?/\s?10|supported)(?!\d)"

LATIN_OVERRIDES: Final = phrases(
    # German
    (
        "anweisung instruktion anordnung befehl regel vorgabe aufforderung prompt",
        r"\b(?:ignorier\w{0,4}|vergiss\w{0,2}|vergessen sie|missachte\w?|uberschreibe\w?|verwirf|beachte… nicht)…"
        r" (?:vorherig|bisherig|vorig|fruher|obig|vorangegangen|vorstehend|ursprunglich|alle|deine|ihre|samtlich)\w{0,3}…"
        r" (?:anweisung|instruktion|anordnung|befehl|regel|vorgabe|aufforderung|prompt)\w{0,3}\b",
    ),
    (
        "jetzt sofort nun neue",
        r"\b(?:ab (?:jetzt|sofort)|von nun an) (?:bist du|sind sie|wirst du|antwort\w{1,3} (?:du|sie|nur)|musst du"
        r"|bewerte\w?)\b"
        r"|\bneue (?:anweisung|instruktion|aufgabe)(?:en)?\s?:",
    ),
    # French
    (
        "instruction consigne directive ordre regle",
        r"\b(?:ignor(?:e|ez|er)|oubli(?:e|ez|er)|neglige[rz]?|ne (?:tiens|tenez) pas compte)…"
        r" (?:instruction|consigne|directive|ordre|regle)s?(?:… (?:precedent|anterieur|ci dessus|initial|avant)\w{0,4}"
        r"| du systeme)",
    ),
    (
        "maintenant desormais dorenavant nouvelles",
        r"\b(?:a partir de maintenant|desormais|dorenavant) (?:tu (?:es|dois|reponds)|vous (?:etes|devez|repondez)"
        r"|repond\w{0,2}"
        r"|note[rz]?)\b|\bnouvelles (?:instructions|consignes)\s?:",
    ),
    # Spanish
    (
        "instrucci indicacion ordenes reglas directrices",
        r"\b(?:ignor(?:a|e|ar|ad|en)|olvid(?:a|e|ar|ad|en)|descart(?:a|e|ar)|no (?:sigas|hagas caso))…"
        r" (?:instruccion|instrucciones|indicaciones|ordenes|reglas|directrices)"
        r"… (?:anterior|previa|arriba|inicial|original|del sistema)\w{0,3}",
    ),
    (
        "ahora nuevas",
        r"\b(?:a partir de ahora|de ahora en adelante) (?:eres|debes|responde|usted (?:es|debe)|tu (?:eres|debes)|seras)\b"
        r"|\bnuevas (?:instrucciones|ordenes)\s?:",
    ),
    # Italian
    (
        "istruzion ordini regole direttive indicazioni",
        r"\b(?:ignor(?:a|i|are|ate)|dimentic(?:a|hi|are|ate)|trascur(?:a|i|are)|non seguire)…"
        r" (?:(?:istruzion[ei]|ordini|regole|direttive|indicazioni)… (?:precedent|sopra|iniziali|original|ricevut)\w{0,2}"
        r"|precedenti (?:istruzioni|direttive|regole|indicazioni))",
    ),
    ("ora nuove", r"\bd(?:a)?[\W_]?ora in (?:poi|avanti) (?:sei|devi|rispondi|lei)\b|\bnuove istruzioni\s?:"),
    # Portuguese
    (
        "instruc ordens regras diretrizes orientacoes",
        r"\b(?:ignor(?:e|a|ar|em)|esquec(?:a|e|er|am)|desconsider(?:e|a|ar|em)|descart(?:e|a|ar))…"
        r" (?:instruc(?:ao|oes)|ordens|regras|diretrizes|orientacoes)… (?:anterior|previa|acima|inicia|origina)\w{0,3}",
    ),
    (
        "agora novas",
        r"\b(?:a partir de agora|de agora em diante) (?:voce|responda|tu es)\b|\bnovas (?:instrucoes|ordens)\s?:",
    ),
    # Dutch, Polish, Turkish
    (
        "negeer vergeet",
        r"\b(?:negeer|vergeet)… (?:vorige|eerdere|voorgaande|bovenstaande|alle)…"
        r" (?:instructies|opdrachten|regels|aanwijzingen)\b",
    ),
    (
        "ignoruj zapomnij",
        r"\b(?:zignoruj|ignoruj|zapomnij)… (?:poprzedni|wczesniejsz|powyzsz|wszystki)\w{0,4}…"
        r" (?:instrukcj|polece|zasad|wytyczn)\w{0,4}",
    ),
    (
        "onceki yukaridaki",
        r"\b(?:onceki|yukaridaki)… (?:talimat|komut|yonerge|kural)\w{0,8}… (?:yok say|gormezden gel|unut|dikkate alma)",
    ),
)

OTHER_OVERRIDES: Final = phrases(
    # Russian, Ukrainian
    (
        "игнориру забуд отбрось следуй выполняй",
        r"(?:(?:про)?игнориру\w{1,4}|забуд\w{1,4}|отбрось\w{0,2}|не (?:следуй|выполняй)\w{0,2})…"
        r" (?:предыдущ|прежн|предшествующ|вышеуказанн|все|систем|ранее|выше)\w{0,4}…"
        r" (?:инструкци|указани|команд|правил|распоряжени)\w{0,3}",
    ),
    ("момента отныне новые", r"(?:с этого момента|отныне) (?:ты|вы)\b|новые (?:инструкции|указания)\s?:"),
    ("ігноруй забудь", r"(?:ігноруй|ігноруйте|забудь|забудьте)… (?:попередн|усі|всі)\w{0,3}… (?:інструкці|вказівк)\w{0,3}"),
    # Chinese, Japanese, Korean: without blanks between words
    (
        "忽略 无视 無視 忘记 忘記 忘掉 不要理会 不要遵 忽視 现在 現在 指令 指示",
        r"(?:忽略|无视|無視|忘记|忘記|忘掉|不要理会|不要遵守|不要遵循|忽視).{0,12}(?:指令|指示|说明|說明|命令|规则|規則|提示)"
        r"|(?:从现在开始|從現在開始|从现在起|從現在起).{0,4}(?:你|请|請)|新(?:的)?(?:指令|指示)[:是]",
    ),
    (
        "指示 命令 ルール プロンプト 指令 規則 今から これから",
        r"(?:以前|前|上記|これまで|今まで|すべて|全て|上)の?.{0,8}(?:指示|命令|ルール|プロンプト|指令|規則).{0,8}(?:無視|忘れ|破棄|従わない)"
        r"|今から(?:あなた|君)は|これからは?(?:あなた|君)は|新しい(?:指示|命令):",
    ),
    (
        "지시 명령 지침 규칙 프롬프트 지금부터",
        r"(?:이전|앞의|위의|기존|모든).{0,12}(?:지시|명령|지침|규칙|프롬프트).{0,8}(?:무시|잊|따르지)|지금부터\s?(?:너는|당신은)",
    ),
    # Arabic, Hebrew, Hindi
    (
        "التعليمات الأوامر الاوامر القواعد الإرشادات التوجيهات الآن تعليمات",
        r"(?:تجاهل|انس|تجاوز|أهمل|اهمل).{0,24}(?:التعليمات|الأوامر|الاوامر|القواعد|الإرشادات|التوجيهات)"
        r"|من الآن فصاعد.{0,8}(?:أنت|انت)|تعليمات جديدة\s?:",
    ),
    ("התעל", r"התעל(?:ם|מי|מו).{0,20}(?:הוראות|ההוראות|ההנחיות|הנחיות)"),
    (
        "निर्देश आदेश नियम",
        r"(?:पिछले|पिछली|पूर्व|सभी|ऊपर).{0,20}(?:निर्देश|आदेश|नियम).{0,16}(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल|उपेक्षा)",
    ),
)

LATIN_DEMANDS: Final = phrases(
    (
        "bewert benot markier stufe",
        rf"\b(?:bewerte\w?|benote\w?|markiere\w?|stufe\w?)…[\W_]{{1,8}}(?:{_ONE}|als relevant\b"
        r"|hochstnote|bestnote|voller? punktzahl)",
    ),
    (
        "note punktzahl bewertung score",
        r"\b(?:gib|geben sie|vergib)… (?:(?:note|punktzahl|bewertung|score|bestnote|hochstnote"
        r"|hochste\w{0,2} (?:note|punktzahl|bewertung))"
        rf"[\W_]{{1,6}}{_ONE}|(?:bestnote|hochstnote)\b)",
    ),
    (
        "note evalu attribu donn marqu",
        r"\b(?:not(?:ez|er)|evalu(?:e|ez|er)|attribu(?:e|ez|er)|donn(?:e|ez|er)|marqu(?:ez|er)"
        r"|(?:note|marque) (?:ce|cet|cette|ces|chaque|tout|toute|le|la|les))…[\W_]{1,8}"
        rf"(?:{_ONE}|la note max\w{{1,5}}|comme pertinent)",
    ),
    (
        "calific evalu puntu marc marque asign otorg",
        r"\b(?:calific(?:a|ar|o)|califique|evalu(?:a|e|ar)|puntu(?:a|e|ar)|marcar|(?:marca|marque) (?:este|esta|esto|cada"
        r"|todo|el|la)|asign(?:a|e|ar)|otorg(?:a"
        r"|ue|ar))…"
        rf"[\W_]{{1,8}}(?:{_ONE}|la (?:puntuacion|nota) maxima|como relevante)",
    ),
    (
        "valut assegn vota classific contrassegn da",
        r"\b(?:valut(?:i|are|ate)|valuta (?:questo|questa|ogni|tutto|il|la)|assegn(?:a|i|are|ate)|vot(?:a|are)"
        r"|classific(?:a|hi)|contrassegn(?:a|i|are)|da a)…"
        rf"[\W_]{{1,8}}(?:{_ONE}|il (?:massimo|punteggio massimo|voto massimo)|come pertinente)",
    ),
    (
        "avali classifi atribu de marque pontue",
        r"\b(?:avali(?:e|a|ar)|classifi(?:que|ca|car)|atribu(?:a|i|ir)|de (?:a|nota)|marque|pontue)…"
        rf"[\W_]{{1,8}}(?:{_ONE}|(?:a )?(?:nota|pontuacao) maxima|como relevante)",
    ),
    (
        "beoordeel geef markeer",
        rf"\b(?:beoordeel|geef|markeer)…[\W_]{{1,8}}(?:{_ONE}|de hoogste (?:score|cijfer)|als relevant)",
    ),
    ("ocen", rf"\bocen\w{{0,3}}…[\W_]{{1,8}}(?:{_ONE}|najwyzsz)"),
)

OTHER_DEMANDS: Final = phrases(
    (
        "оцен постав присво отмет",
        rf"(?:оцен\w{{1,4}}|поставь\w{{0,2}}|присво\w{{1,4}}|отмет\w{{1,4}})…[\W_]{{1,8}}(?:{_ONE}"
        r"|(?:максимальн|высш)\w{1,4} (?:оценк|балл)\w{0,2}|как (?:подтвержд\w{1,6}|релевантн\w{1,4}))",
    ),
    (
        "1.0 满分 滿分 最高分 100分 supported 相关 支持",
        r"(?:评分|打分|评为|给出|判定|标记|給出|評為|標記|得分|分数|分數).{0,10}(?:1\.0|满分|滿分|最高分|100分|supported|为相关|为支持)"
        r"|(?:给|給).{0,10}(?:1\.0|满分|滿分|最高分|100分)",
    ),
    (
        "1.0 満点 最高点 supported 100点",
        r"(?:評価|スコア|採点|得点|点数|判定).{0,10}(?:1\.0|満点|最高点|supported|100点)"
        r"|(?:1\.0|満点|最高点)(?:と|を|に).{0,6}(?:評価|採点|付け|つけ|して)",
    ),
    (
        "1.0 만점 supported",
        r"(?:평가|점수|채점).{0,12}(?:1\.0|만점|supported)|(?:1\.0|만점)(?:으로|을).{0,8}(?:평가|채점|주)",
    ),
    (
        "قيم قيّم امنح أعط اعط ضع صنف",
        r"(?:قيم|قيّم|امنح|أعط|اعط|ضع|صنف).{0,28}(?:1[.,]0|١[.٫,]٠|الدرجة الكاملة|أعلى درجة|اعلى درجة|supported)",
    ),
)
