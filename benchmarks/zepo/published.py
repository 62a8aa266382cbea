"""The figures as published: Spearman of pairwise ranking, initial instruction -> ZEPO."""

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
"""data set -> criterion -> the two judges of ``JUDGES``."""

ROWS = {
    "initial": ".48",
    "initial + permutation": ".61",
    "searched": ".56",
    "searched + permutation": ".64",
}
"""Newsroom, Llama-3-8B, average over the four criteria."""

OBJECTIVES = {"fairness": ".75", "calibration": "weaker", "confidence": "poor", "context-free confidence": ".36"}
"""Correlation of each objective with agreement over instructions, as far as the paper prints a number."""

PROMPTS = 60_000
"""Judge prompts of the published code for one criterion of SummEval."""
