"""Layouts of MQM feedback with the errors that they report: (critical, major, minor), or None if nobody can be sure."""

import itertools
from collections import Counter

import pytest

from evalbias.measures import mqm_score, parse_mqm, read_mqm

LIST = [  # Xu et al. 2024
    ("'cat' is a critical accuracy/mistranslation error", (1, 0, 0)),
    ('"cat" is a major accuracy/addition error\n"the" is a minor style/awkward error', (0, 1, 1)),
    ("1. 'cat' is a major accuracy/omission error\n2. 'dog' is a major accuracy/omission error", (0, 2, 0)),
    ("- 'cat' is a minor fluency/grammar error.\n- 'dog' is a minor fluency/grammar error.", (0, 0, 2)),
    ("**'cat'** is a **major** accuracy/mistranslation error", (0, 1, 0)),
    ("\u201ccat\u201d is considered a critical accuracy/mistranslation error", (1, 0, 0)),
    ("'the dogs' house' is a minor fluency/punctuation error", (0, 0, 1)),
    ("'no major errors' is a minor style/awkward error", (0, 0, 1)),
    ("'cat', 'dog' and 'cow' are minor terminology errors", (0, 0, 3)),
    ("'cat', 'dog' are a minor terminology error", None),  # one or two?
    ("'cat' is a major accuracy/mistranslation error\n'dog' is a min", (0, 1, 0)),  # the last line breaks off
    ("'cat' is a major accuracy/mistranslation error\n'dog' is a", (0, 1, 0)),
    ("'cat' is a minor style error. 'dog' is a maj; 'cow' is a minor style error.", None),  # breaks off too early
    ("'cat' is a major accuracy/mistranslation error\n'dog and", (0, 1, 0)),
    ("'cat' is a major accuracy/mistranslation error\n'dog' is a typo, it should be 'hound'", None),  # how severe?
    ("'cat' is a minor error, because the word means 'dog'.", (0, 0, 1)),
    ("'cat' is a major accuracy/mistranslation error. This error changes the meaning.", (0, 1, 0)),
    ("'cat' is not a major error.\n'dog' is a minor style error", (0, 0, 1)),
    ("'London' is a major city.", None),
    ("'cat' is an accuracy/mistranslation error (major)", (0, 1, 0)),
    ("MQM annotations:\n'cat' is a minor fluency/spelling error", (0, 0, 1)),
    (
        "There are two errors:\n'cat' is a minor fluency/spelling error\n'dog' is a minor fluency/spelling error",
        (0, 0, 2),
    ),
    ("There are three errors:\n'cat' is a minor fluency/spelling error\n'dog' is a minor fluency/spelling error", None),
    # listed and counted: two errors, not four
    (
        "There are two errors:\n'cat' is a minor style/awkward error\n'dog' is a minor style/awkward error\nMinor: 2",
        (0, 0, 2),
    ),
    ("accuracy/omission (major): 'cat' and 'dog'", None),  # one or two?
    ("accuracy errors (major): 'cat'", None),
    ("the grammar mistakes (minor): 'cat'", None),
    ("'cat' is a major accuracy/mistranslation error\nno-error", None),
    ("no-error\n'cat' is a minor style/awkward error", None),
    ("'cat' is a major accuracy/mistranslation error. Some minor errors remain.", None),  # how many?
]
SECTIONS = [  # GEMBA-MQM
    ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"', (0, 1, 0)),
    ('Major:\n(a) accuracy/addition - "cat" (b) accuracy/omission', (0, 2, 0)),  # the first letter is a bullet
    ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"\nfluency/grammar - "dog"\nMinor:\nstyle - "a"', (0, 2, 1)),
    ("Critical:\nno-error\nMajor:\nno-error\nMinor:\nno-error", (0, 0, 0)),
    ("Critical:\nno-error\nMajor:\nno-error\nMinor:", None),  # breaks off
    ("Critical:\nno-error", None),
    ("Critical errors: none / Major errors: 'cat' is mistranslated / Minor errors: none", (0, 1, 0)),
    ("Critical errors: none; Major errors: none; Minor errors: none", (0, 0, 0)),
    ("Critical: 0\nMajor: 2\nMinor: 1", (0, 2, 1)),
    ("**Critical:**\n- None\n\n**Major:**\n- accuracy/omission - 'cat'\n\n**Minor:**\n- None", (0, 1, 0)),
    ("## Major errors\n'cat' is mistranslated", None),  # a heading without its colon
    ("Major (2):\n- accuracy/omission - 'cat'\n- accuracy/omission - 'dog'", (0, 2, 0)),
    ("Major (3):\n- accuracy/omission - 'cat'\n- accuracy/omission - 'dog'", None),
    ("Major:\n- accuracy/mistranslation - 'cat'\n  Explanation: the word means 'dog'.", (0, 1, 0)),
    ("Major:\n'cat'\nExplanation: the word is missing", (0, 1, 0)),
    ("Major:\nErrors:\n'cat'", (0, 1, 0)),
    ("Major: accuracy/mistranslation - 'cat'\nMajor: accuracy/omission - 'dog'", (0, 2, 0)),
    ("Minor: 'a', 'the'", (0, 0, 2)),
    ("Minor errors: 1. 'a' is awkward 2. 'the' is awkward", (0, 0, 2)),
    ("critical: 0, major: 1, minor: 0", (0, 1, 0)),
    ("Major: 1 error, Minor: 2 errors", (0, 1, 2)),
    ("Major:\nSee above.", None),
    ("a critical, a major error: 'cat'", (1, 1, 0)),
    ("Major:\n'a'\n\"the 'cat' is mistranslated", (0, 2, 0)),
]
SEVERAL_ON_A_LINE = [  # below a severity
    ('Major: accuracy/mistranslation - "a", fluency/grammar - "b"', (0, 2, 0)),
    ("Major: accuracy/mistranslation: 'a', fluency/grammar: 'b', style: 'c'", (0, 3, 0)),
    ("Major: accuracy/mistranslation - 'a'; fluency/grammar - 'b'", (0, 2, 0)),
    ("Major: accuracy/mistranslation - 'a'. fluency/grammar - 'b'.", (0, 2, 0)),
    ("Major: accuracy/mistranslation - 'a' and fluency/grammar - 'b'", (0, 2, 0)),
    ('Major: accuracy/mistranslation - "a", "b"', None),  # two errors, or one in two words?
    ("Major: 'a' (wrong tense), 'b' (wrong number)", (0, 2, 0)),
    ("Major: 'a' (accuracy/mistranslation), 'b' (fluency/grammar)", (0, 2, 0)),
    ("Major: 'a': wrong tense; 'b': wrong number", (0, 2, 0)),
    ('Major: mistranslation of "a", omission of "b"', (0, 2, 0)),
    ("Major: omission of 'a', 'b'", None),
    ("Major: accuracy/omission, accuracy/addition", (0, 2, 0)),
    ("Major: accuracy/omission and fluency/grammar", (0, 2, 0)),
    ("Major: accuracy, mistranslation", None),  # a category with its subcategory?
    ("Major: fluency", (0, 1, 0)),
    ("Major: fluency; style", (0, 2, 0)),
    ("Major: fluency, style", None),  # two errors, or one of two kinds?
    ("Major: accuracy/mistranslation fluency/grammar", None),
    ("Major: accuracy/mistranslation, fluency/grammar - 'a'", None),
    ("Major: 'a', accuracy/omission", (0, 1, 0)),
    ("Major: 'a', accuracy/mistranslation, 'b', fluency/grammar", None),
    ("Major: 'a' accuracy/mistranslation 'b' fluency/grammar", None),
    ("Major errors: 1. 'a' 2. 'b'", (0, 2, 0)),
    ("Major errors: (1) accuracy/omission - 'a' (2) fluency/grammar - 'b'", (0, 2, 0)),
    ("Major errors: a) 'a' b) 'b' c) 'c'", (0, 3, 0)),
    ("Major:\n1. 'a' 2. 'b'", (0, 2, 0)),  # the first number is a bullet
    ("Major errors: 1. 'a' 3. 'b'", None),
    ("Major errors: 7. 'a' 8. 'b'", None),
    ("Major: #1 'a' #2 'b'", None),
    ("Major: 'a' 'b'", None),
    ("Major: 'a', 'b' 'c'", None),
    ("Major: 'a'; the rest is odd", None),
    ("Major: 'a'; Explanation: it is odd; 'b'", (0, 2, 0)),
    ("Major: 'a' / 'b'", None),
    ("Major: 'a' or 'b'", None),
    ("Major: 'a' since it is plural / 'b' since it is past", None),
    ("Major: 'a' since it is plural and 'b' since it is past", (0, 2, 0)),
    ("Major: 'a', 'b' and 'c'", (0, 3, 0)),
    ("Major: 'a' & 'b'", (0, 2, 0)),
    ("Major: 'a' and 'b' are mistranslated", None),
    ("Major: 'a' is mistranslated, 'b' too", None),
    ("Major: two omissions", None),
    ("Major: 'a' 2x", None),
    ("Major: 'a' (2)", None),
    ("Major: 2 errors: 'a', 'b'", (0, 2, 0)),
    ("Major: 2 errors: 'a'", None),
    ("Major: accuracy/mistranslation -> 'a', 'b'", None),
    ("Major: accuracy/mistranslation (should be 'c'), 'b'", None),
    ("Major: accuracy/omission - the cat, the dog", None),
    ("Major: accuracy/mistranslation - 'a', and another one at the end", None),
    ("Critical: no-error; Major: 'a', 'b'; Minor: 'c'", (0, 2, 1)),
    ("Major: 'a' Minor: 'b'", None),
    ("Major:\nError 1: 'a'\nError 2: 'b'", (0, 2, 0)),
    ("Major:\n'a'\nError 2: 'b'", (0, 2, 0)),
    ("Major:\nSpan: 'a'\nCategory: accuracy/omission", None),
    (
        "Critical:\nno-error\nMajor:\nomission of 'a', addition of 'b'\nMinor:\nstyle - 'a', style - 'b', style - 'c'",
        (0, 2, 3),
    ),
]
QUOTATIONS = [  # two quotations of one error, and marks of all kinds
    ('Major: "a" should be "b"', (0, 1, 0)),
    ("Major: 'a' instead of 'b'", (0, 1, 0)),
    ('Major: "a" -> "b"', (0, 1, 0)),
    ("Major: 'a' \u2192 'b'; 'c' \u2192 'd'", (0, 2, 0)),
    ('Major: "a" should be "b", "c" should be "d"', (0, 2, 0)),
    ('Major: "a" (should be "b"), "c" (should be "d")', (0, 2, 0)),
    ("Major: 'a' was translated as 'b'", (0, 1, 0)),
    ("Major: 'a' is wrong, 'b' is correct", (0, 1, 0)),
    ("Major: 'a' is wrong, 'b' is wrong", (0, 2, 0)),
    ('Major: accuracy/mistranslation - "a" (the source says "b")', (0, 1, 0)),
    ("Major: accuracy/mistranslation - 'a', should be 'b'", (0, 1, 0)),
    ("Major: should be 'b' instead of 'a'", None),  # understood by a reader, but by no rule here
    ("Major:\n'a' is mistranslated\nIt should be 'b'.", (0, 1, 0)),
    ("Major:\nIt should be 'b'.", None),
    ("Major: accuracy/mistranslation - 'a, b and c'", (0, 1, 0)),
    ('Major: "a, b", "c"', (0, 2, 0)),
    ("Major: accuracy/mistranslation - 'don't', fluency/grammar - 'can't'", (0, 2, 0)),
    ("'don't', 'can't' are minor fluency/spelling errors", (0, 0, 2)),
    ("Major: 'the 'big' cat', 'dog'", (0, 2, 0)),
    ("Major: \u201che said \u2018no\u2019 twice\u201d, \u201ca\u201d", (0, 2, 0)),
    ("Major: accuracy/mistranslation - '\u732b', accuracy/omission - '\u72ac'", (0, 2, 0)),
    ("Major: \u300c\u732b\u300d, \u300c\u72ac\u300d", (0, 2, 0)),
    ("Major: style - \u00ab\u043a\u043e\u0442\u00bb, style - \u00ab\u043f\u0435\u0441\u00bb", (0, 2, 0)),
    ("'a' is a major accuracy error, it should be 'b'.", (0, 1, 0)),
    ("'a' is a major mistranslation of 'b'.", (0, 1, 0)),
    (
        "'a' is a minor error, as it is a misspelling of 'b' (the word for 'c'). The correct translation is 'b'.",
        (0, 0, 1),
    ),
]
MORE_IN_PROSE = [  # an error beside one that has a severity
    ("There is a major error in 'a' and another one in 'b'.", None),
    ("There is a major error at the beginning and another at the end.", None),
    ("There is a major error in 'a' and a minor one in 'b'.", (0, 1, 1)),
    ("There is a major mistranslation and a serious omission.", None),
    ("There is a major mistranslation and omission.", None),
    ("There is a major error, and there is a mistake in the tense.", None),
    ("There is a major mistranslation of 'a' and of 'b'.", None),
    ("Two errors: 'a' is a major accuracy error.", None),
    ("Two mistranslations: 'a' (major).", None),
    ("Several errors: 'a' is a major accuracy error.", None),
    ("Two errors: 'a' (major), 'b' (minor)", (0, 1, 1)),
    ("There are two major errors: 'a', 'b' and 'c'.", None),
    ("'a' is a major accuracy error and 'b' is a minor fluency error", (0, 1, 1)),
    ("'a' is a major accuracy error, 'b' is mistranslated", None),
    ("'a' is a major accuracy error and 'b' too.", None),
    ("'a' is a major accuracy error\n'b' too", None),
    ("'a' is a major accuracy error. So is 'b'.", None),
    ("'a' is a major accuracy error. The same holds for 'b'.", None),
    ("'a' - major/accuracy, 'b', 'c' - minor/fluency", None),
]
COMPACT = [  # AutoMQM and its relatives
    ("Errors: 'cat' - major/accuracy; 'dog' - minor/fluency", (0, 1, 1)),
    ("'cat' - major/accuracy, 'dog' - minor/fluency, 'cow' - minor/style", (0, 1, 2)),
    ("'cat' - accuracy/mistranslation - critical", (1, 0, 0)),
    ("'cat' (major accuracy/mistranslation)", (0, 1, 0)),
    ("'cat': minor fluency", (0, 0, 1)),
    ("accuracy/mistranslation (major): 'cat'\nfluency/grammar (minor): 'dog'", (0, 1, 1)),
    ("Major accuracy/mistranslation error: 'cat'", (0, 1, 0)),
    ("[minor] fluency/spelling: 'cat'", (0, 0, 1)),
    ("Error 1:\nSpan: 'cat'\nCategory: accuracy/mistranslation\nSeverity: major", (0, 1, 0)),
    ("Errors: none", (0, 0, 0)),
    ('[{"span": "cat", "severity": "major"}]', None),  # JSON is not read
]
PROSE = [
    ("There are 2 major errors.", (0, 2, 0)),
    ("There are two major errors and one minor error in the translation.", (0, 2, 1)),
    ("There are 2 major errors:\n'cat' is a major accuracy error\n'dog' is a major accuracy error", (0, 2, 0)),
    ("There are 3 major errors:\n'cat' is a major accuracy error\n'dog' is a major accuracy error", None),
    ("There is one major error: 'cat' should be 'dog'.", (0, 1, 0)),
    ("The translation contains a major mistranslation of 'cat' and a minor omission.", (0, 1, 1)),
    ("The translation has a major and a minor error.", (0, 1, 1)),
    ("The translation contains several major errors.", None),
    ("The translation contains at least two major errors.", None),
    ("There are two or three minor errors.", None),
    ("There are minor errors in the translation.", None),
    ("The minor accuracy errors are 'cat' and 'dog'.", (0, 0, 2)),
    ("No major errors. One minor fluency/punctuation error is the missing comma.", (0, 0, 1)),
    ("There are no critical or major errors, only two minor ones: 'a' and 'the'.", (0, 0, 2)),
    ("no-error. The translation is fine except a major mistranslation of 'cat'.", None),  # contradicts itself
    ("There are no major errors except a major mistranslation of 'cat'.", None),
    ("The translation is fine except for a major mistranslation of 'cat'.", (0, 1, 0)),
    ("There is a mistranslation of 'cat'. The error is minor.", None),
    ("The change in meaning is major.", None),
    ("The source says nothing, so there is a critical non-translation error.", (1, 0, 0)),
    ("There are 0 critical errors, 0 major errors and 0 minor errors.", (0, 0, 0)),
    ("There are no critical, major, or minor errors.", (0, 0, 0)),
    ("There are no major errors.", None),  # and minor ones?
    ("'cat' is wrong, and 'dog' is a minor style error.", None),
]
NO_ERRORS = [
    ("no-error", (0, 0, 0)),
    ("No errors were found, no-error.", (0, 0, 0)),
    ("'no-error'", (0, 0, 0)),
    ("None. The translation is correct.", (0, 0, 0)),
    ("The translation does not contain any errors.", (0, 0, 0)),
    ("This is a good translation without errors.", (0, 0, 0)),
    ("No errors found. Improved translation: 'cat'", (0, 0, 0)),
    ("There aren't any errors.", (0, 0, 0)),
    ("Not a single error.", (0, 0, 0)),
    ("No other errors.", None),
    ("No errors in the first sentence.", None),
    ("Almost no errors.", None),
    ("Are there no errors?", None),
    ("Where there is nothing to find, write no-error.", None),  # the instruction, written again
    ("The categories are accuracy, fluency, style, terminology, non-translation, other, or no-error.", None),
    ("No significant errors.", None),
    ("There are no grammatical errors.", None),
    ("No errors in grammar.", None),
    ("No errors. However, 'cat' should be 'dog'.", None),
    ("There are no errors except for the word 'cat'.", None),
    ("I am not sure that there are no errors.", None),
    ("The translation is not free of errors.", None),
    ("The translation is not accurate.", None),
    ("The translation is mostly correct.", None),
    ("The translation is not correct.", None),
    ("No errors. The second sentence is missing.", None),
    ("No", (0, 0, 0)),
]
LAYOUTS = [*LIST, *SECTIONS, *SEVERAL_ON_A_LINE, *QUOTATIONS, *COMPACT, *PROSE, *MORE_IN_PROSE, *NO_ERRORS]


@pytest.mark.parametrize(("text", "counts"), LAYOUTS)
def test_layouts(text, counts):
    errors = parse_mqm(text)
    found = None if errors is None else Counter(error.severity for error in errors)
    assert found == (
        None if counts is None else Counter(dict(zip(("critical", "major", "minor"), counts, strict=True)))
    )


@pytest.mark.parametrize(
    ("text", "spans", "categories"),
    [
        ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"', ["cat"], [("accuracy", "addition")]),
        ("'cat' - major/accuracy; 'it's' - minor/fluency", ["cat", "it's"], [("accuracy", ""), ("fluency", "")]),
        ("accuracy/mistranslation (major): 'cat'", ["cat"], [("accuracy", "mistranslation")]),
        *(
            (text, spans, [("accuracy", "addition"), ("style", "awkward")])
            for text, spans in (
                ("accuracy/addition (major): 'cat', style/awkward (minor): 'dog'", ["cat", "dog"]),
                ("accuracy/addition (major) 'cat', style/awkward (minor) 'dog'", ["cat", "dog"]),
                ("accuracy/addition (major) - 'cat', style/awkward (minor)", ["cat", None]),
                ("'cat' accuracy/addition (major), 'dog' style/awkward (minor)", ["cat", "dog"]),
                ("'cat' accuracy/addition (major), style/awkward (minor): 'dog'", ["cat", "dog"]),
            )
        ),
        ("a major mistranslation of 'cat'", ["cat"], [("mistranslation", "")]),
        ("a minor error in 'cat', a major error in 'dog'", ["cat", "dog"], [("", "")] * 2),
        ("a minor style error in 'cat', major omission error", ["cat", None], [("style", ""), ("omission", "")]),
        ("'cat', a minor style error, 'dog', a major style error", ["cat", "dog"], [("style", "")] * 2),
        ("'a', 'the' are minor fluency/grammar errors", ["a", "the"], [("fluency", "grammar")] * 2),
    ],
)
def test_spans_and_categories(text, spans, categories):
    errors = read_mqm(text).errors
    assert [error.span for error in errors] == spans
    assert [(error.category, error.subcategory) for error in errors] == categories


def test_a_judge_who_adds_a_doubt_never_raises_the_score():
    """Whatever is said besides a certain report, the score stays the same or becomes undefined: it is never better."""
    report = "'cat' is a major accuracy/mistranslation error"
    for text, _ in LAYOUTS:
        errors = parse_mqm(f"{report}\n{text}")
        assert errors is None or mqm_score(errors) <= -5, text


ERRORS = [
    "'{}'",
    "'{}' (wrong)",
    "accuracy/omission - '{}'",
    "'{}': fluency/grammar",
    "omission of '{}'",
    "'{}' is wrong",
]
JOINTS = (", ", "; ", " and ", ", and ", " & ", ". ", " / ", " | ", "\n", " ")


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("heading", ["Major: ", "Major errors:\n", "Major:\n- "])
def test_errors_on_one_line_are_all_counted_or_the_text_is_undefined(n, heading):
    certain = 0
    for layout in itertools.product(ERRORS, repeat=n):
        listed = [error.format(word) for error, word in zip(layout, ("cat", "don't", "a, b"), strict=False)]
        for joint in JOINTS:
            text = heading + joint.join(listed)
            errors = parse_mqm(text)
            assert errors is None or len(errors) == n, text
            certain += errors is not None
        for marks in ("1. {} 2. {}", "1. {} 2. {} 3. {}"):
            if marks.count("{}") == n:
                assert len(parse_mqm(heading + marks.format(*listed))) == n
    assert certain >= 0.3 * len(ERRORS) ** n * len(JOINTS)  # not all are undefined


@pytest.mark.parametrize("rest", ["{} too", "another in {}", "a mistranslation of {}", "{} as well", "also {}", "{}"])
@pytest.mark.parametrize("joint", [" and ", ", ", ", and ", ". Also ", "; "])
def test_an_error_without_a_severity_is_never_left_out(rest, joint):
    text = "'cat' is a major accuracy/mistranslation error" + joint + rest.format("'dog'") + "."
    assert parse_mqm(text) is None


def test_a_quotation_is_no_part_of_the_category():
    (error,) = read_mqm('Major accuracy/addition "cat"').errors
    assert (error.span, error.category, error.subcategory) == ("cat", "accuracy", "addition")
