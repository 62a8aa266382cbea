"""Sections of a command's help, as plain text: rich's panels cut long words off in a narrow terminal."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand

ARGUMENTS, DATA, JUDGE, OWN = "Arguments", "Data", "Model and judge", "Options"
MEASUREMENT, EXTERNAL, MODELS, RUN = "Measurement", "External feedback and quality", "Running models", "Run"
SECTIONS = (ARGUMENTS, DATA, JUDGE, OWN, MEASUREMENT, EXTERNAL, MODELS, RUN)
"""Headings in their order; an option that names none stands under ``OWN``."""

data_option = partial(typer.Option, rich_help_panel=DATA)
judge_option = partial(typer.Option, rich_help_panel=JUDGE)
measure_option = partial(typer.Option, rich_help_panel=MEASUREMENT)
external_option = partial(typer.Option, rich_help_panel=EXTERNAL)
model_option = partial(typer.Option, rich_help_panel=MODELS)
run_option = partial(typer.Option, rich_help_panel=RUN)


class Sectioned(TyperCommand):
    """A command whose help lists its options under the headings that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections that have options."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in SECTIONS}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                sections[_heading(parameter)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _heading(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return ARGUMENTS
    return RUN if parameter.name == "help" else parameter.rich_help_panel or OWN
