"""Texts that command a terminal or a CI job, and checks that none of them was shown as it is."""

import re
import unicodedata

from hypothesis import strategies as st

PIECES = [*("::error::x", "##[error]x", "##vso[a]"), *("\n", "\r", " ", "\u00a0", ":", "##", "x", *"#[<b>&\"'")]
CHARACTERS = st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Lu", "Nd")), max_size=3)
TEXTS = st.lists(CHARACTERS | st.sampled_from(PIECES), max_size=8).map("".join)
WORST = (
    "::error::a\n::add-mask::b\r::c ##[error]d ##vso[e]f\x1b[2J\x1b]0;t\x07\x9b1m\x00\u202egnp\u202c\u2066i\u2069\u200f"
    "\u061c\u2028::g\u2029\U000e0041 </text><script>alert(1)</script><img src=x onerror=alert(1)> font: 12px serif"
)
MARKS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def obeyed(text):
    """Return the characters of a text that a terminal obeys, that reorder text, or that are not seen."""
    return [
        c
        for c in text
        if (unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\t\n")
        or unicodedata.bidirectional(c) in MARKS
        or c in "\u061c\u200e\u200f"
        or 0xE0000 <= ord(c) <= 0xE007F
    ]


def check_printed(text):
    """Check that a terminal or a CI job obeys nothing in what was printed."""
    assert obeyed(text) == []
    for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
        assert not line.strip().startswith("::")
        assert not re.search(r"##\w*\[", line)
