"""The seven criteria of the likelihood-bias paper (Ohi et al. 2024, appendices A and B), in our own words."""

from __future__ import annotations

from dataclasses import replace

from evalbias.data import world
from evalbias.programs.criterion import Criterion

WEBNLG_BINS = (15.0, 40.0, 65.0, 90.0)
"""Where the paper's code cuts the 0-100 human scores of WebNLG+ 2020 into the labels 1 to 5."""

_DATA_TO_TEXT = Criterion(
    name="data_to_text",
    definition="to be replaced",
    task="Put the following XML data into English.",
    source_label="Data",
    output_label="Text",
)
_CORRECTION = Criterion(
    name="correction",
    definition="to be replaced",
    scale=(0, 4),
    task="Rewrite the following English text so that its grammar is right.",
    source_label="Original",
    output_label="Correction",
)

WEBNLG = tuple(
    replace(_DATA_TO_TEXT, name=name, definition=definition)
    for name, definition in {
        "text_structure": "is the text grammatical and well organised?",
        "relevance": "does the text keep to what the data says, without saying anything else?",
        "fluency": "does the text read as naturally as if a good writer had written it?",
        "correctness": "does the text state each relation of the data with the right subject and the right object?",
        "data_coverage": "does the text mention everything that the data holds?",
    }.items()
)
"""text_structure, relevance, fluency, correctness and data_coverage, 1 to 5."""

TMU_GFM = tuple(
    replace(_CORRECTION, name=name, definition=definition)
    for name, definition in {
        "grammar": "is the correction free of mistakes? 4 is faultless, 1 is hard to follow, 0 is none of these.",
        "fluency": "how natural is it to a native speaker? 4 is entirely natural, 1 not at all, 0 is neither.",
    }.items()
)
"""grammar and fluency, 0 to 4."""

PRESETS: dict[str, tuple[Criterion, ...]] = {"webnlg2020": WEBNLG, "tmu-gfm": TMU_GFM}
"""The criteria of each data set that has its own."""

BINS: dict[str, tuple[float, ...]] = {"webnlg2020": WEBNLG_BINS}
"""How each data set's human scores become labels, where they are not on the labels' scale."""

INTRINSIC = frozenset({"fluency", "text_structure", "grammar"})
"""Criteria that the output alone decides; the paper finds them less prone to likelihood bias."""

SYNTHETIC = Criterion(
    name=world.NAME,
    definition=world.DEFINITION,
    scale=world.SCALE,
    task=world.TASK,
    source_label=world.SOURCE_LABEL,
    output_label=world.OUTPUT_LABEL,
)
"""What the embedded judge was trained to judge: the quality of a text of the synthetic world."""
