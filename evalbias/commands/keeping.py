"""Write a compiled program only if it is better than the one that was given, or if asked to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.conclusions import worsened
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.selection import GIVEN


def keep(
    program: Any,
    report: CompileReport,
    path: Path,
    *,
    compared: Mapping[str, Comparison],
    keep_worse: bool,
    kind: str = "judge",
) -> str:
    """Write a compiled program if it is better than the given one; returns a sentence that says what was done.

    An optimizer that chooses on held-back items has decided what is better. The bare method of a paper decides nothing;
    its result is written unless the test items show that it is worse.

    Args:
        program: What the optimizer returned.
        report: Its report.
        path: JSON file to write.
        compared: Bias or agreement -> the given against the compiled program on the test items.
        keep_worse: Write it all the same.
        kind: What the program is, in words.
    """
    if report.candidates:
        if any(one.chosen and one.name != GIVEN for one in report.candidates):
            program.save(str(path))
            return f"{path.name} holds the compiled {kind}."
        if not keep_worse:
            return (
                f"No {kind} was written, because nothing was better than the given one; --keep-worse writes the given "
                "one."
            )
        program.save(str(path))
        return f"{path.name} holds the {kind} as it was given, because nothing was better."
    worse = worsened(compared)
    if worse and not keep_worse:
        return (
            f"No {kind} was written, because the bare method made it worse on the test items ({'; '.join(worse)}); "
            "--keep-worse writes it all the same."
        )
    program.save(str(path))
    if worse:
        return f"{path.name} holds a {kind} that is worse than the given one on the test items ({'; '.join(worse)})."
    return (
        f"{path.name} holds the bare method's {kind}; nothing was kept back to show that it is better, and the test "
        "items do not show that it is worse."
    )
