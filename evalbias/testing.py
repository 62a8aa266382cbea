"""Tests of judges: an assertion that an audit decides by its intervals, which pytest also offers as a fixture."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from evalbias.evaluation.audit import AuditReport


def assert_unbiased(judge: Any, items: Any, *conditions: str, allow_undecided: bool = False, **options: Any) -> Any:
    """Return an audit if it shows all conditions, such as ``"likelihood<0.2"`` or ``"agreement.spearman>0.3"``.

    A condition is shown if the whole 95 % interval of its number meets it; for a bias, the distance from an unbiased
    judge is compared, in either direction. So a judge that is near the limit, or too few items, fail as undecided.

    Args:
        judge: Judge to audit: a program, any ``dspy.Module``, or a function of an item, as ``judge`` of ``audit`` takes
            it; or the name of the field that holds its recorded scores.
        items: Items with people's ratings, or a file of them.
        conditions: Conditions to show, on each criterion of ``criterion=[...]``; all are tested on the same audit.
        allow_undecided: Warn if an interval neither shows nor refutes a condition, instead of failing.
        options: Further options of ``audit``, such as ``scale=(1, 5)`` or ``lm=...``.

    Raises:
        AssertionError: A condition is not shown; the message has the number, its interval, and the audit's verdict.
        ValueError: A condition is malformed or names no bias, or ``audit`` refuses the items.

    Examples:
        >>> from evalbias.testing import assert_unbiased
        >>> rows = [{"source": "s", "output": "a" * n, "ratings": [n % 5, n % 5], "mine": n % 5} for n in range(1, 200)]
        >>> assert_unbiased("mine", rows, "verbosity<0.5").having("biased")
        []
    """
    from evalbias.cli.audit import parse_conditions  # pytest imports this module in every run
    from evalbias.evaluation.audit import AuditReports, audit

    __tracebackhide__ = True  # pytest then points to the test
    if not conditions:
        raise ValueError("Give what must be shown, such as 'likelihood<0.2'.")
    wanted = parse_conditions([f"{part.rstrip('?')}?" for text in conditions for part in text.split(",")])
    named = {"scores_field": judge} if isinstance(judge, str) else {"judge": judge}
    audited = audit(items, **named, **options)
    audits: Mapping[str, AuditReport] = audited.audits if isinstance(audited, AuditReports) else {"": audited}
    decided = [condition.decide(report, name) for name, report in audits.items() for condition in wanted]
    if failed := [outcome.reason for outcome in decided if outcome.code == 1]:
        raise AssertionError("\n".join([*failed, audited.verdict]))
    if undecided := [outcome.sentence for outcome in decided if outcome.code]:
        message = "\n".join([*undecided, audited.verdict])
        if not allow_undecided:
            raise AssertionError(message)
        warnings.warn(message, stacklevel=2)
    return audited


def pytest_configure(config: pytest.Config) -> None:
    """Give pytest, which finds this module by its entry point, the fixture ``assert_unbiased``."""
    import pytest

    @pytest.fixture(name="assert_unbiased", scope="session")
    def fixture() -> Any:
        """Audit a judge, and fail if a condition such as "verbosity<0.2" is not shown."""
        return assert_unbiased

    fixtures = ModuleType("evalbias_fixtures")  # in a class, pytest 9 warns of its scope
    fixtures.assert_unbiased = fixture  # type: ignore[attr-defined]
    config.pluginmanager.register(fixtures)
