"""Figures of Table 1 as published, before -> after, with the paper's signs (* p < .05, dagger p < .06)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One judge on one criterion, as printed.

    Attributes:
        bias: BiasScore, before -> after.
        performance: Spearman's rho with people, before -> after.
    """

    bias: str
    performance: str


JUDGES = ("GPT-3.5", "Llama2-13B")

TABLE: dict[str, dict[str, tuple[Published, Published]]] = {
    "webnlg2020": {
        "text_structure": (Published(".36 -> .23*", ".46 -> .53†"), Published(".17 -> .02*", ".34 -> .36")),
        "relevance": (Published(".43 -> .31*", ".35 -> .38"), Published(".28 -> .15†", ".25 -> .23")),
        "fluency": (Published(".26 -> .29", ".41 -> .55*"), Published(".20 -> .00*", ".33 -> .52†")),
        "correctness": (Published(".36 -> .32", ".44 -> .47"), Published(".21 -> -.01*", ".37 -> .43")),
        "data_coverage": (Published(".40 -> .32*", ".20 -> .30†"), Published(".24 -> .16", ".24 -> .25")),
        "total": (Published(".38 -> .32†", ".48 -> .58*"), Published(".17 -> .02†", ".40 -> .46")),
    },
    "tmu-gfm": {
        "grammar": (Published(".46 -> .37†", ".48 -> .54"), Published(".24 -> .24", ".45 -> .46")),
        "fluency": (Published(".36 -> .29", ".40 -> .47"), Published(".16 -> .09", ".49 -> .48")),
        "total": (Published(".43 -> .37", ".45 -> .52"), Published(".21 -> .18", ".48 -> .52")),
    },
}
"""Data set -> criterion -> figures of the two judges in ``JUDGES``."""
