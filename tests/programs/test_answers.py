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


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\dfrac12", "1/2", True),
        (r"-\frac{3}{4}", r"\frac{-3}{4}", True),
        ("1,000", "1000", True),
        (r"\$12.50", "12.5", True),
        (r"50\%", "50", True),
        ("x = 3", "3", True),
        ("x = 3", "x = 3.0", True),
        (r"90^\circ", "90", True),
        (r"12\text{ cm}", "12", True),
        (r"\text{east}", r"\text{west}", False),
        (r"\text{Monday}", "Monday", True),
        (r"\text{(A)}", r"\text{(B)}", False),
        (r"\textbf{A}", "A", True),
        ("x=5", "y=5", False),
        ("x=5", "5", True),
        (r"\dfrac{\sqrt{2}}{2}", r"\frac{\sqrt{2}}{2}", True),
        (r"x \le 3", r"x\leq 3", True),
        (r"\left(1, 2\right)", "(1,2)", True),
        ("(1, 2)", "(1,2)", True),
        ("(1)(2)", "12", False),
        ("(1,2)", "1,2", False),
        ("1/3", "0.33", False),
        ("1/0", "1/0", True),
        ("1/0", "0", False),
        ("x+1", "x + 1", True),
        ("x+1", "1+x", False),  # no algebra
        ("07", "7", True),
    ],
)
def test_equal_values(a, b, same):
    assert same_value(a, b) is same
    assert same_value(b, a) is same


@given(st.fractions(max_denominator=999))
def test_a_fraction_equals_itself_in_latex(q):
    assert same_value(rf"\frac{{{q.numerator}}}{{{q.denominator}}}", f"{q.numerator}/{q.denominator}")
