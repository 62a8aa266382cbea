"""Sentences of MQM feedback that name no severity: do they deny errors, praise, report errors, or none of these?"""

from __future__ import annotations

import re

from evalbias.measures.quotations import MASKS, QUOTATION

CATEGORIES = (
    r"(?:accuracy|fluency|style|terminology|locale(?: convention)?|non-translation|other|additions?|omissions?"
    r"|mistranslations?|untranslated|grammar|grammatical|spelling|punctuation|register|inconsistency|inconsistent"
    r"|inappropriate|character encoding|awkward|word order|word choice|typos?|transliteration)"
)
"""Regular expression of the beginning of an error category."""
ERRORS = r"(?:errors?|mistakes?|issues?|problems?)"
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: n for n, word in enumerate(_NUMBER_WORDS)}
NUMBER = rf"(?P<number>\d{{1,2}}|{'|'.join(_NUMBERS)})"
_NOUNS = (
    r"\b(?:errors?|mistakes?|issues?|problems?|typos?|mistranslations?|misspellings?|omissions?|inaccurac(?:y|ies))\b"
)

_DENIED = re.compile(
    r"\bno[ -](?:(?!critical|major|minor)\w+[ -]){0,2}?(?:errors?|mistakes?|issues?|problems?)\b"
    r"|\berror-free\b|\b(?:without|free (?:of|from)) (?:any )?(?:errors?|mistakes?)\b"
    r"|(?:\bnot|n't) (?:any|a single) (?:translation )?(?:errors?|mistakes?|issues?|problems?)\b"
    r"|(?:\b(?:not|cannot)|n't) (?:\w+ )?(?:contain|have|find|see|identify|detect|spot|show|present)\b"
    r" (?:any |a single )?(?:translation )?(?:errors?|mistakes?|issues?|problems?)\b"
    r"|^\W*(?:none|n/a|nothing|no|nil)(?: (?:was |is |are |were )?(?:found|identified|detected))?\W*$"
    r"|^\W*(?:the )?(?:\w+ )?(?:translation|text|output|sentence) is (?:(?:completely|fully|entirely|perfectly) )?"
    r"(?:correct|perfect|flawless)\W*$",
    re.IGNORECASE,
)
_PARTIAL = re.compile(
    rf"\bno[ -](?:other|further|more|additional|significant|serious|obvious|glaring|big|real|{CATEGORIES})\b"
    r"|\b(?:first|second|third|last|beginning|end|part|half|rest|remaining|most|mostly|almost|nearly|hardly|practically"
    r"|virtually|probably|possibly|perhaps|maybe|write|where|when)\b|\bor no[ -]errors?\b|\?"
    rf"|{ERRORS} (?:of|in|regarding|with|concerning)(?: the| its)? (?!terms){CATEGORIES}(?!.*,)",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:but|however|except|excepting|apart from|aside from|other than|besides|although|though|while|whereas|yet"
    r"|unless|if|should|could|would|not|cannot|only|just|still|rather|instead)\b|n't\b",
    re.IGNORECASE,
)
_PRAISE = re.compile(
    r"^\W*(?:overall|therefore|so|thus|hence|in (?:summary|conclusion))?,? ?"
    r"(?:(?:the|this|it|that)(?: \w+)? ?(?:translation|text|output|sentence)?s? (?:is|reads|sounds) (?:an? )?"
    r"(?:(?:very|quite|completely|fully|entirely|also|already|perfectly) )?"
    r"(?:accurate|correct|fluent|fluently|good|fine|excellent|natural|naturally|clear|faithful|well|great|perfect|high)"
    r"(?:(?:,|,? and) \w+){0,3}(?: translation| quality)?(?: of the source(?: text| segment)?)?"
    r"|(?:the|this) translation (?:accurately|correctly|faithfully|fully) (?:conveys|captures|reflects|translates)"
    r" the (?:meaning|content|sense)(?: of the (?:source|original)(?: text| segment| sentence)?)?"
    r"|good|perfect|great|(?:good|great) (?:job|work)|well done)\W*$",
    re.IGNORECASE,
)
_LABEL = re.compile(
    rf"^[^{MASKS}]*\b(?:errors?|annotations?|mqm|feedback|analysis|translation|output|source|reference|category"
    rf"|span|location|explanation|reason|correction|suggestion|type|note|total|score)(?: \d+)?\s*:\s*\W*$"
    rf"|^(?:improved|corrected|better|revised) translation\s*:\s*{QUOTATION}?\W*$",
    re.IGNORECASE,
)
_REFERS_BACK = re.compile(rf"\b(?:this|these|that|those|the|each|such|both|all|its) {_NOUNS}", re.IGNORECASE)
_NEGATED_NOUN = re.compile(rf"\b(?:no|without|(?:not|n't) any|free of) (?:\w+ ){{0,2}}{_NOUNS}", re.IGNORECASE)
_EXPLANATION = re.compile(
    r"^\W*(?:explanations?|reasons?|corrections?|suggestions?|suggested|notes?|fix|justification|comment|category|type"
    r"|error type|span|location|error \d+|error span|error location|source|translation)\b[^:]*:",
    re.IGNORECASE,
)
_FAULTY = re.compile(
    rf"{QUOTATION}\s+(?:(?:is|are|was|were)\s+(?:\w+\s+)?(?:wrong|incorrect|missing|omitted|untranslated|mistranslated"
    r"|misspelled|inaccurate|awkward)|should (?:be|read|have been))\b",
    re.IGNORECASE,
)
_ANNOUNCES = re.compile(
    r"^\W*(?:there are|here are|these are|i found|(?:the|this) translation (?:has|contains))\b[^.:]*"
    r"\b(?:errors|mistakes|issues|problems)\b",
    re.IGNORECASE,
)
_BLOCKED = re.compile(
    r"^\W*(?:(?:the )?(?:response|output|content|prompt|request|answer) )?(?:was |is |has been )?blocked\b"
    r"|\bcontent (?:filter|policy)|\b(?:i'?m|i am) (?:sorry|unable|not able)\b|\bi (?:cannot|can't|can not)\b"
    r"|\bas an ai\b",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    rf"(?<![\w/.-]){NUMBER} (?:\w+ )?(?:{ERRORS}|omissions?|additions?|mistranslations?|typos?|misspellings?)\b",
    re.IGNORECASE,
)


def number_of(word: str) -> int:
    """Return the number that ``NUMBER`` matched, in digits or as a word."""
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def stated_total(sentence: str) -> int | None:
    """Return the number of errors that a sentence without a severity states; None if it states none."""
    total = _TOTAL.search(sentence)
    return number_of(total["number"]) if total else None


def faults_a_quotation(sentence: str) -> bool:
    """True if the sentence calls a quotation wrong, without the word error."""
    return _FAULTY.search(sentence) is not None


def verdict(sentence: str) -> str:
    """Classify a masked sentence without a severity.

    Returns:
        ``"none"`` if it says that there are no errors at all; ``"unsure"`` if it denies errors in part, takes the
        denial back, or reports an error without its severity; ``"blocked"`` if it refuses; ``"label"`` for praise,
        headings and explanations; ``"other"`` for anything else.
    """
    denial = _DENIED.search(sentence)
    if denial:
        rest = sentence[: denial.start()] + " " + sentence[denial.end() :]
        if re.search(r"\bno[ -](?:other|further|more|additional)\b", sentence, re.IGNORECASE):
            return "other"
        return "unsure" if _HEDGED.search(rest) or _PARTIAL.search(sentence) else "none"
    if (
        not re.search(rf"\w|{QUOTATION}", sentence)
        or _ANNOUNCES.search(sentence)
        or _LABEL.search(sentence)
        or _EXPLANATION.search(sentence)
    ):
        return "label"
    if _PRAISE.search(sentence):
        return "label"
    if _BLOCKED.search(sentence):
        return "blocked"
    names_error = re.search(_NOUNS, sentence, re.IGNORECASE)
    harmless = _REFERS_BACK.search(sentence) or _NEGATED_NOUN.search(sentence)
    return "unsure" if faults_a_quotation(sentence) or (names_error and not harmless) else "other"
