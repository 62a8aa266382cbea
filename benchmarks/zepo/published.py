"""Figures of the fairness paper as published (Zhou et al., EMNLP 2024)."""

JUDGES = ("Mistral-7B", "Llama-3-8B")

SPEARMAN: dict[str, dict[str, tuple[str, str]]] = {
    "newsroom": {
        "coherence": (".33 -> .47", ".49 -> .57"),
        "relevance": (".40 -> .38", ".51 -> .54"),
        "informativeness": (".19 -> .44", ".46 -> .55"),
        "fluency": (".19 -> .48", ".45 -> .56"),
    },
    "summeval": {
        "coherence": (".06 -> .29", ".24 -> .40"),
        "fluency": (".01 -> .13", ".12 -> .25"),
        "consistency": (".07 -> .32", ".30 -> .30"),
        "relevance": (".16 -> .30", ".21 -> .39"),
    },
}
"""Data set -> criterion -> Spearman of the two judges in ``JUDGES``, initial instruction -> ZEPO."""

ROWS = {
    "initial": ".48",
    "initial + permutation": ".61",
    "searched": ".56",
    "searched + permutation": ".64",
}
"""Judge -> Spearman on Newsroom with Llama-3-8B, averaged over the four criteria."""

OBJECTIVES = {"fairness": ".75", "calibration": "weaker", "confidence": "poor", "context-free confidence": ".36"}
"""Objective -> correlation with agreement over instructions, or the paper's word where it prints no number."""

DEBIASED = ".495 to .51, .26 to .43"
"""Range of decision rates and of Spearman over wordings after debiasing (Llama-3-8B, coherence, SummEval; figure 4)."""

PROMPTS = 60_000
"""Number of judge prompts that the published code needs for one criterion of SummEval."""
