import json

import numpy as np
import pytest
from fakes import FormulaLM

from evalbias.lm.journal import JournaledLM

CHOICES = ("1", "2")


def prompt(number):
    return [{"role": "system", "content": "s"}, {"role": "user", "content": f"q={number} z=0"}]


def test_nothing_is_asked_twice_and_the_numbers_are_the_same(tmp_path):
    file = tmp_path / "judgments.jsonl"
    first = JournaledLM(FormulaLM(), file, model="m", chunk=2)
    answer = first.choice_logprobs([prompt(i) for i in (1, 2, 3, 1)], CHOICES)
    assert (first.asked, first.replayed) == (3, 1)
    again = JournaledLM(FormulaLM(), file, model="m")
    replay = again.choice_logprobs([prompt(i) for i in (3, 2, 1)], CHOICES)
    assert (again.asked, again.replayed) == (0, 3)
    assert np.array_equal(replay.logprobs, answer.logprobs[[2, 1, 0]])


def test_likelihoods_are_kept_too(tmp_path):
    first = JournaledLM(FormulaLM(), tmp_path / "j", model="m").loglikelihood([("c", "q=1 z=-2")])
    again = JournaledLM(FormulaLM(), tmp_path / "j", model="m")
    assert again.loglikelihood([("c", "q=1 z=-2")])[0].total == first[0].total == -23.0
    assert again.asked == 0


def test_another_model_or_other_choices_are_asked(tmp_path):
    JournaledLM(FormulaLM(), tmp_path / "j", model="m").choice_logprobs([prompt(1)], CHOICES)
    other = JournaledLM(FormulaLM(), tmp_path / "j", model="other")
    other.choice_logprobs([prompt(1)], CHOICES)
    other.choice_logprobs([prompt(1)], ("1", "3"))
    assert other.asked == 2


@pytest.mark.parametrize(("kept", "asked"), [(0.3, 6), (0.55, 4), (0.8, 2), (1.0, 0)])
def test_a_torn_end_is_cut_off_and_asked_again(tmp_path, kept, asked):
    file = tmp_path / "j"
    prompts = [prompt(i) for i in range(6)]
    whole = JournaledLM(FormulaLM(), file, model="m", chunk=2).choice_logprobs(prompts, CHOICES)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * kept)])
    resumed = JournaledLM(FormulaLM(), file, model="m", chunk=2)
    answer = resumed.choice_logprobs(prompts, CHOICES)
    assert np.array_equal(answer.logprobs, whole.logprobs)
    assert resumed.asked == asked
    assert file.read_bytes() == data
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()]
    assert len(set(keys)) == len(keys) == 6


def test_a_spoilt_line_is_named(tmp_path):
    (tmp_path / "j").write_text("{}\n")
    with pytest.raises(ValueError, match=r"j:1 is no record of this log, it lacks \['key'\]"):
        JournaledLM(FormulaLM(), tmp_path / "j", model="m")


def test_impossible_choices_survive(tmp_path):
    class Never(FormulaLM):
        def _row(self, prompt, choices):
            return [-np.inf for _ in choices]

    JournaledLM(Never(), tmp_path / "j", model="m").choice_logprobs([prompt(1)], CHOICES)
    again = JournaledLM(Never(), tmp_path / "j", model="m").choice_logprobs([prompt(1)], CHOICES)
    assert np.array_equal(again.logprobs, [[-np.inf, -np.inf]])


def test_a_failed_call_keeps_what_was_answered_before(tmp_path):
    class Fails(FormulaLM):
        def choice_logprobs(self, prompts, choices):
            if self.calls == 2:
                raise ConnectionError("no answer")
            return super().choice_logprobs(prompts, choices)

    prompts = [prompt(i) for i in range(6)]
    with pytest.raises(ConnectionError, match="no answer"):
        JournaledLM(Fails(), tmp_path / "j", model="m", chunk=2).choice_logprobs(prompts, CHOICES)
    again = JournaledLM(FormulaLM(), tmp_path / "j", model="m", chunk=2)
    again.choice_logprobs(prompts, CHOICES)
    assert (again.asked, again.replayed) == (2, 4)


def test_written_answers_are_kept_too(tmp_path):
    class Writes(FormulaLM):
        def written(self, prompts, *, max_tokens):
            self.calls += 1
            return [f"{p[-1]['content']} {max_tokens}" for p in prompts]

    lm = Writes()
    for _ in range(2):
        found = JournaledLM(lm, tmp_path / "j", model="m").written([prompt(1), prompt(2)], max_tokens=8)
        assert found == ["q=1 z=0 8", "q=2 z=0 8"]
    assert lm.calls == 1
