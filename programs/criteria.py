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
        "text_structure": "is the text grammatical and well organized?",
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

_SUMMARY = Criterion(
    name="summary",
    definition="to be replaced",
    task="Summarize the following article.",
    source_label="Article",
    output_label="Summary",
)
_REPLY = Criterion(
    name="reply",
    definition="to be replaced",
    task="Write the next turn of the following dialogue.",
    source_label="Dialogue",
    output_label="Reply",
)

NEWSROOM = tuple(
    replace(_SUMMARY, name=name, definition=definition)
    for name, definition in {
        "coherence": "do the phrases and sentences of the summary fit together and make sense as a whole?",
        "relevance": "do the details of the summary agree with the article?",
        "informativeness": "does the summary hold the key points of the article?",
        "fluency": "is each sentence of the summary well written and free of mistakes?",
    }.items()
)
"""coherence, relevance, informativeness and fluency, 1 to 5."""

SUMMEVAL = tuple(
    replace(_SUMMARY, name=name, definition=definition)
    for name, definition in {
        "coherence": "do the sentences of the summary build up to one well organized text?",
        "fluency": "is each sentence of the summary free of mistakes and easy to read?",
        "consistency": "does the summary say only what the article supports?",
        "relevance": "does the summary hold what matters in the article, and nothing else?",
    }.items()
)
"""coherence, fluency, consistency and relevance, 1 to 5."""

TOPICALCHAT = tuple(
    replace(_REPLY, name=name, definition=definition, scale=scale)
    for name, definition, scale in (
        ("understandability", "can the reply be understood, given what was said before?", (0, 1)),
        ("naturalness", "is the reply what a person could naturally say here?", (1, 3)),
        ("coherence", "does the reply follow from what was said before?", (1, 3)),
        ("engagingness", "is the reply interesting rather than dull?", (1, 3)),
        ("groundedness", "does the reply make use of the fact?", (0, 1)),
        ("overall", "how good is the reply, taken all in all?", (1, 5)),
    )
)
"""understandability, naturalness, coherence, engagingness, groundedness and overall, each on its own scale."""

_WRITING = Criterion(name="writing", definition="to be replaced", task="Write the text.", output_label="Text")
FLUENCY = replace(_WRITING, name="fluency", definition="does the text read as if a good writer had written it?")
UNDERSTANDABILITY = replace(
    _WRITING, name="understandability", definition="can a reader who knows nothing else follow what the text says?"
)
"""What a refine loop may improve besides quality (Xu et al. 2024, section 5.3), 1 to 5."""

PRESETS: dict[str, tuple[Criterion, ...]] = {
    "webnlg2020": WEBNLG,
    "tmu-gfm": TMU_GFM,
    "newsroom": NEWSROOM,
    "summeval": SUMMEVAL,
    "topicalchat": TOPICALCHAT,
}
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
