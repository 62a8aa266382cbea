"""Results of commands as sections of a page: one rule for each kind of result, none for single commands."""

from evalbias.report.html.sections import audited, compiling, loops  # their rules are registered
from evalbias.report.html.sections.base import Context, sections, several_criteria

__all__ = ["Context", "audited", "compiling", "loops", "sections", "several_criteria"]
