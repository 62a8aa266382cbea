import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbias.programs.feedback import boxed_answer, same_value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} and then \boxed{ \frac{1}{2} }.", r"\frac{1}{2}"),
        (r"\fbox{x^{2}+1}", "x^{2}+1"),
        (r"\boxed{\{1, 2\}", None),  # the braces do not close
        ("the answer is 4", None),
        (r"\boxed{}", None),
        ("", None),
    ],
)
def test_the_last_box_is_the_answer(text, answer):
    assert boxed_answer(text) == answer


SAME = (
    r"\frac{1}{2} ~ 0.5 | \dfrac12 ~ 1/2 | -\frac{3}{4} ~ \frac{-3}{4} | 1,000 ~ 1000 | \$12.50 ~ 12.5 | 50\% ~ 50 | "
    r"07 ~ 7 | x = 3 ~ 3 | x = 3 ~ x = 3.0 | x=5 ~ 5 | 90^\circ ~ 90 | 12\text{ cm} ~ 12 | \text{Monday} ~ Monday | "
    r"\textbf{A} ~ A | \dfrac{\sqrt{2}}{2} ~ \frac{\sqrt{2}}{2} | x \le 3 ~ x\leq 3 | \left(1, 2\right) ~ (1,2) | "
    r"(1, 2) ~ (1,2) | 1/0 ~ 1/0 | x+1 ~ x + 1"
)
DIFFERENT = (
    r"\text{east} ~ \text{west} | \text{(A)} ~ \text{(B)} | x=5 ~ y=5 | (1)(2) ~ 12 | (1,2) ~ 1,2 | 1/3 ~ 0.33 | "
    "1/0 ~ 0 | x+1 ~ 1+x"  # no algebra
)


@pytest.mark.parametrize(("pairs", "same"), [(SAME, True), (DIFFERENT, False)])
def test_equal_values(pairs, same):
    for a, b in (pair.split(" ~ ") for pair in pairs.split(" | ")):
        assert same_value(a, b) is same, (a, b)
        assert same_value(b, a) is same, (b, a)


@given(st.fractions(max_denominator=999))
def test_a_fraction_equals_itself_in_latex(q):
    assert same_value(rf"\frac{{{q.numerator}}}{{{q.denominator}}}", f"{q.numerator}/{q.denominator}")
