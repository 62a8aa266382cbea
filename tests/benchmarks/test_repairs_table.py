"""The table of repairs: what a chat model's letters owe to places is told from what they say."""

import dspy
import numpy as np

import evalbias
from benchmarks import repairs
from benchmarks.gallery import ByLetters
from benchmarks.harness import RESULTS, ROOT
from evalbias.lm.types import ChoiceLogprobs


class Chat:
    """A chat model that likes the first letters, the less the longer the summary, whatever they stand for."""

    def __init__(self, *_, **__):
        pass

    def provenance(self):
        return {"model": "chat"}

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            length = len(one.prompt[0]["content"].split("\n")[0])
            logits = -(0.5 - length / 200) * np.arange(len(one.choices))
            answers[place] = ChoiceLogprobs(one.choices, (logits - np.log(np.exp(logits).sum()))[None])


def test_letters_that_mean_places_lose_their_spread_in_both_orders(monkeypatch, tmp_path):
    monkeypatch.setattr(evalbias, "LocalLM", Chat)
    monkeypatch.setattr(repairs, "TASKS", {"level": repairs.TASKS["level"], "yes": repairs.TASKS["yes or no"]})
    lengths = np.random.default_rng(0).permutation(np.repeat([1, 20, 40], 16)).tolist()
    items = [
        dspy.Example(source=f"{k}", output="x" * n, scores={"coherence": 1 + n / 10}) for k, n in enumerate(lengths)
    ]
    rows = list(repairs.rows_of(ByLetters(tmp_path / "chat.gguf"), items, 0))
    assert len(rows) == 8
    judge, asked, repair, effect, change, kept, agreement, verdict = rows[0]
    assert (judge, asked, repair, effect) == ("chat, by letters", "level", "both orders averaged", "shift")
    before, after = map(float, change.split(" -> "))
    assert before > 0.5 > after == 0
    assert kept == "0 %"
    assert agreement == "+1.00 -> undefined"
    assert verdict.startswith("answers alike: the spread of its scores falls from")


def test_the_pages_quote_the_table():
    page = (RESULTS / "repairs.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if "SmolLM2" in line and "| level | both orders and contex" in line)
    assert "| +2.05 -> +0.00 | 19 % |" in row
    assert "answers alike" in row
    guide, findings = (ROOT / name for name in ("docs/how-to/decision-models.md", "benchmarks/RESULTS.md"))
    assert "moved by 2.05 points" in guide.read_text(encoding="utf-8")
    assert "from 2.05 points to 0 and keep 19 % of the spread" in findings.read_text(encoding="utf-8")
    assert page.count("is chosen") == 0
