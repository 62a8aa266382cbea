"""Answers that are kept: none is asked for twice, and none of another model, a torn file or a stranger is taken."""

import errno
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import FormulaLM, outcome

from evalbias.lm.cache import CachedLM, Store
from evalbias.lm.types import Choices, Refused, Unanswered
from evalbias.runs import Journal
from evalbias.values import digest

CHOICES = ("1", "2")
PAIRS = [([{"role": "user", "content": "c"}], f"q=1 z={k}") for k in range(3)]


def prompt(number):
    return [{"role": "system", "content": "s"}, {"role": "user", "content": f"q={number} z=0"}]


def test_nothing_is_asked_twice_and_the_numbers_are_the_same(tmp_path):
    file = tmp_path / "judgments.jsonl"
    first = CachedLM(FormulaLM(), file, chunk=2)
    answer = first.choice_logprobs([prompt(i) for i in (1, 2, 3, 1)], CHOICES)
    assert (first.asked.total(), first.replayed) == (3, 1)
    again = CachedLM(FormulaLM(), file)
    replay = again.choice_logprobs([prompt(i) for i in (3, 2, 1)], CHOICES)
    assert (again.asked.total(), again.replayed) == (0, 3)
    assert np.array_equal(replay.logprobs, answer.logprobs[[2, 1, 0]])
    renamed = FormulaLM()
    renamed.model = "other"
    other = CachedLM(renamed, file)
    for choices in (CHOICES, ("1", "3")):  # of another model, and then other choices
        other.choice_logprobs([prompt(1)], choices)
    assert other.asked.total() == 2


def test_likelihoods_texts_and_impossible_choices_are_kept_too(tmp_path):
    class Writes(FormulaLM):
        def _row(self, prompt, choices):
            return [-np.inf for _ in choices]

        def write(self, question):
            self.calls += 1
            return f"{question.prompt[-1]['content']} {question.max_tokens}"

    lm = Writes()
    for _ in range(2):
        cached = CachedLM(lm, tmp_path / "j")
        assert cached.loglikelihood([("c", "q=1 z=-2")])[0].total == -23.0
        assert cached.texts([prompt(1), prompt(2)], max_tokens=8) == ["q=1 z=0 8", "q=2 z=0 8"]
        assert np.array_equal(cached.choice_logprobs([prompt(1)], CHOICES).logprobs, [[-np.inf, -np.inf]])
    assert lm.calls == 4


@pytest.mark.parametrize(("kept", "asked"), [(0.3, 6), (0.55, 4), (0.8, 2), (1.0, 0)])
def test_a_torn_end_is_cut_off_and_asked_again(tmp_path, kept, asked):
    file = tmp_path / "j"
    prompts = [prompt(i) for i in range(6)]
    whole = CachedLM(FormulaLM(), file, chunk=2).choice_logprobs(prompts, CHOICES)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * kept)])
    resumed = CachedLM(FormulaLM(), file, chunk=2)
    answer = resumed.choice_logprobs(prompts, CHOICES)
    assert np.array_equal(answer.logprobs, whole.logprobs)
    assert resumed.asked.total() == asked
    assert file.read_bytes() == data
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()]
    assert len(set(keys)) == len(keys) == 6


@pytest.mark.parametrize("damage", [{"logprobs": [-1.0]}, {"logprobs": "many"}, {"logprobs": [[0.0], 1.0]}, {}])
def test_a_damaged_answer_is_named(tmp_path, damage):
    CachedLM(FormulaLM(), tmp_path / "j").choice_logprobs([prompt(1)], CHOICES)
    key = json.loads((tmp_path / "j").read_text())["key"]
    (tmp_path / "j").unlink()
    Journal(tmp_path / "j").append([{"key": key, "renormalized": False, **damage}])
    with pytest.raises(ValueError, match=f"j: the answer {key} is damaged .*: delete its line"):
        CachedLM(FormulaLM(), tmp_path / "j").choice_logprobs([prompt(1)], CHOICES)


class Batched(FormulaLM):
    """Gives answers whose last digits depend on the questions of a call, and is stopped in the call of a number."""

    is_local = True

    def __init__(self, stopped=-1):
        super().__init__(refuses=lambda question: "item 5" in question.prompt[0]["content"])
        self.left, self.sent = stopped, []

    def answer(self, questions, answers):
        own = {}
        super().answer(questions, own)
        self.sent.append([one.prompt[0]["content"] for one in questions])
        for place, answer in own.items():
            answers[place] = answer
            if not isinstance(answer, Refused):
                digits = 1e-9 * (hash(tuple(self.sent[-1])) % 97)
                answers[place] = replace(answer, logprobs=answer.logprobs - digits)
            if self.left == 0:
                raise KeyboardInterrupt
        self.left -= 1


def many(count):
    return [[{"role": "user", "content": f"q=1 z=0 of item {i}"}] for i in range(count)]


def test_prompts_that_begin_alike_are_in_one_chunk(tmp_path):
    texts = [f"text {n}: {wording} q=1 z=0" for wording in "abc" for n in range(4)]
    lm, questions = Batched(), [Choices([{"role": "user", "content": text}], CHOICES) for text in texts]
    CachedLM(lm, tmp_path / "j", chunk=6).answer(questions, {})
    assert lm.sent == [sorted(texts)[:6], sorted(texts)[6:]]


def test_a_stopped_run_asks_the_chunks_of_one_that_was_not_to_the_last_digit(tmp_path):
    questions = [Choices(prompt, CHOICES) for prompt in many(70)]
    lm = Batched()
    kept = CachedLM(lm, tmp_path / "whole", chunk=8)
    whole, refused, _ = outcome(kept, questions)
    calls, asked = [], len(lm.sent)
    assert (outcome(kept, questions)[1], len(lm.sent)) == (refused, asked)  # neither is what was refused
    for stopped in (0, 1, 3, 2, -1):  # in the first call, then after one more, three more, two more
        part = Batched(stopped)
        answers, again, ended = outcome(CachedLM(part, tmp_path / "j", chunk=8), questions)
        assert (ended is None) == (stopped < 0)
        calls += part.sent[:stopped] if stopped >= 0 else part.sent
    assert calls == lm.sent  # the call that was stopped is asked again, and no other
    assert again == refused
    assert len(refused) == 11
    assert all((answers[n].logprobs == whole[n].logprobs).all() for n in whole)
    assert (tmp_path / "j").read_text() == (tmp_path / "whole").read_text()


class Server(FormulaLM):
    """Answers each question in another thread, in reverse order, and raises an error after so many."""

    answers_alone = True

    def __init__(self, after=-1, error=None):
        super().__init__()
        self.after, self.error = after, error

    def answer(self, questions, answers):
        self.told = answers
        with ThreadPoolExecutor(1) as other:
            for count, number in enumerate(reversed(range(len(questions)))):
                if count == self.after:
                    raise self.error
                row = FormulaLM.choice_logprobs(self, [questions[number].prompt], questions[number].choices)
                other.submit(answers.__setitem__, number, row).result()


@pytest.mark.parametrize("error", [Unanswered("no answer"), KeyboardInterrupt()])
def test_answers_that_came_before_an_error_are_kept_and_none_that_comes_after_it(tmp_path, error):
    progress, answers = [], {}
    server = Server(3, error)
    lm = CachedLM(server, tmp_path / "j", progress=progress.append)
    with pytest.raises(type(error)):
        lm.answer([Choices(prompt, CHOICES) for prompt in many(4)], answers)
    assert sorted(answers) == [1, 2, 3]
    server.told[0] = answers[1]  # too late: the folder may be another process's
    assert len((tmp_path / "j").read_text().splitlines()) == lm.asked.total() == sum(progress) == 3


def test_on_a_full_disk_the_answers_that_fit_are_kept(tmp_path, monkeypatch):
    lm = CachedLM(Server(), tmp_path / "j")
    append, room = lm._journal.append, [3]

    def full(records, **how):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= len(records)
        append(records, **how)

    monkeypatch.setattr(lm._journal, "append", full)
    with pytest.raises(OSError, match="No space left"):
        lm.choice_logprobs(many(9), CHOICES)
    resumed = CachedLM(Server(), tmp_path / "j")
    resumed.choice_logprobs(many(9), CHOICES)
    assert (resumed.asked.total(), resumed.replayed) == (6, 3)


def test_a_servers_answers_are_flushed_and_reported_every_second(tmp_path, monkeypatch):
    flushed, reported = [], []
    clock = iter(np.arange(10.0, 99.0, 0.3))
    monkeypatch.setattr("evalbias.lm.cache.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("evalbias.runs.os.fsync", flushed.append)
    CachedLM(Server(), tmp_path / "j", progress=reported.append).choice_logprobs(many(9), CHOICES)
    assert reported[0] == 0  # replayed
    assert reported[1] == 1
    assert sum(reported) == 9
    assert 3 <= len(flushed) < len(reported) < 7
    assert len((tmp_path / "j").read_text().splitlines()) == 9


# Runs share the likelihoods under a model on this machine.


class Local(FormulaLM):
    is_local = True


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVALBIAS_KEEP")
    return tmp_path / "cache" / "likelihoods"


def measured(lm, file=None):
    """Likelihoods of three texts and one judgment, and what the model itself was asked."""
    cached = CachedLM(lm, file)
    values = [answer.per_token.tolist() for answer in cached.loglikelihood(PAIRS)]
    cached.choice_logprobs([prompt(1)], CHOICES)
    return values, {kind.__name__: n for kind, n in cached.asked.items()}


def test_runs_share_the_likelihoods_under_a_model_of_this_machine_and_no_judgments(store, tmp_path):
    first, asked = measured(Local(), tmp_path / "a.jsonl")
    assert asked == {"Likelihood": 3, "Choices": 1}
    assert measured(Local(), tmp_path / "b.jsonl") == (first, {"Choices": 1})
    assert measured(Local()) == (first, {"Choices": 1})
    (file,) = store.glob("*.sqlite")
    assert b"z=" not in file.read_bytes()


@pytest.mark.parametrize("reason", ["another model", "a server", "variable", "code", "record"])
def test_likelihoods_are_measured_anew(reason, store, tmp_path, monkeypatch):
    first, _ = measured(Local())
    lm = Local()
    if reason == "another model":
        lm.model = "another"
    elif reason == "a server":
        lm = FormulaLM()
    elif reason == "variable":
        monkeypatch.setenv("EVALBIAS_KEEP", "0")
    elif reason == "code":
        monkeypatch.setattr("evalbias.lm.cache.__file__", str(tmp_path / "cache.py"))
    else:
        (file,) = store.glob("*.sqlite")
        content = file.read_bytes()
        file.write_bytes(content.replace(b"[-", b"[ "))
        assert file.read_bytes() != content
    assert measured(lm) == (first, {"Likelihood": 3, "Choices": 1})


@pytest.mark.parametrize("damage", [b"no database at all" * 99, None])
def test_a_damaged_store_is_set_aside_once_and_begun_anew(damage, store, caplog):
    first, _ = measured(Local())
    (file,) = store.glob("*.sqlite")
    content = file.read_bytes()
    file.write_bytes(damaged := damage or content[:4096] + b"\xff" * (len(content) - 4096))
    assert measured(Local()) == (first, {"Likelihood": 3, "Choices": 1})
    assert measured(Local()) == (first, {"Choices": 1})
    assert file.with_suffix(".damaged").read_bytes() == damaged
    (said,) = caplog.records
    assert "is damaged" in said.getMessage()


def test_a_store_that_another_process_has_begun_anew_is_left_alone(store, monkeypatch):
    measured(Local())
    (file,) = store.glob("*.sqlite")

    def damaged(path, **options):
        file.replace(store / "elsewhere")
        file.write_bytes((store / "elsewhere").read_bytes())
        raise sqlite3.DatabaseError("file is not a database")

    with monkeypatch.context() as patched:
        patched.setattr("evalbias.lm.cache.sqlite3.connect", damaged)
        CachedLM(Local()).loglikelihood(PAIRS)
    assert measured(Local())[1] == {"Choices": 1}
    assert not [*store.glob("*.damaged")]


def test_the_store_forgets_what_was_written_first_and_a_run_keeps_all(store, monkeypatch, tmp_path):
    monkeypatch.setattr("evalbias.lm.cache.LIMIT", 64_000)
    pairs = [([{"role": "user", "content": "c"}], f"q={k:03} z={k} " + "w " * 50) for k in range(400)]
    lm = CachedLM(Local(), tmp_path / "a.jsonl", chunk=10)
    first = lm.loglikelihood(pairs)
    (file,) = store.glob("*.sqlite")
    assert file.stat().st_size < 80_000
    last, begun = CachedLM(Local()), CachedLM(Local())
    last.loglikelihood(pairs[-20:])
    begun.loglikelihood(pairs[:20])
    assert (last.asked.total(), begun.asked.total()) == (0, 20)
    for own in (lm, CachedLM(Local(), tmp_path / "a.jsonl")):
        before = own.asked.total()
        again = own.loglikelihood(pairs)
        assert own.asked.total() == before
        assert all((a.per_token == b.per_token).all() for a, b in zip(first, again, strict=True))


def test_without_a_home_the_folder_is_asked_for(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("EVALBIAS_CACHE", "XDG_CACHE_HOME", "EVALBIAS_KEEP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", home)
    with pytest.raises(ValueError, match=r"home directory\. Set EVALBIAS_CACHE to the folder"):
        CachedLM(Local())


def test_models_lose_none_of_each_others_likelihoods(store):
    first, second = CachedLM(Local()), CachedLM(Local())
    for lm, pair in zip((first, second, first), PAIRS, strict=True):
        lm.loglikelihood([pair])
    second.loglikelihood(PAIRS)
    assert second.asked.total() == 1
    assert measured(Local())[1] == {"Choices": 1}
    assert len(list(store.iterdir())) == 1


def test_a_store_that_others_write_costs_a_run_no_more_than_what_is_shared(store, tmp_path, monkeypatch):
    monkeypatch.setattr("evalbias.lm.cache.WAIT", 0.01)
    CachedLM(Local()).loglikelihood([("c", "q=1 z=9")])
    (file,) = store.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for asked in ({"Likelihood": 3, "Choices": 1}, {}):  # the second time from its own file
            assert measured(Local(), tmp_path / "answers.jsonl")[1] == asked


NO_RECORDS = ["7", '"a"', "[1]", "{}", "[" * 100_000, '{"per_token": ']
NO_RECORDS += [f'{{"per_token": {value}}}' for value in ("3", "[]", "[null]", "[[-1.0]]")]


@pytest.mark.parametrize("record", NO_RECORDS)
def test_a_record_that_is_no_likelihood_is_measured_anew(store, record):
    first, _ = measured(Local())
    (file,) = store.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as other, other:
        for (key,) in other.execute("SELECT key FROM kept").fetchall():
            right = digest([key[-64:], record], 16)
            other.execute("UPDATE kept SET record = ?, sum = ? WHERE key = ?", (record, right, key))
    assert measured(Local()) == (first, {"Likelihood": 3, "Choices": 1})
    assert measured(Local()) == (first, {"Choices": 1})


@pytest.mark.parametrize("kind", ["tables", "link", "dangling", "journal", "folder"])
def test_a_store_of_others_and_a_link_are_left_alone(store, tmp_path, kind):
    Store().write({"a": 1})
    (file,), target = store.glob("*.sqlite"), tmp_path / "target"
    if kind == "tables":  # a view may run for ever
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("DROP TABLE kept")
            other.execute("CREATE VIEW kept AS SELECT 'a' AS key, '1' AS record, '' AS sum")
    elif kind == "folder":
        store.rename(target)
        store.symlink_to(target)
    else:
        place = file.with_name(file.name + "-journal" * (kind == "journal"))
        if kind == "link":
            file.rename(target)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    content = target / file.name if kind == "folder" else target if kind == "link" else file
    before = content.read_bytes() if content.exists() else None
    for _ in range(2):  # the first one finds other tables
        Store().write({"b": 2})
    assert Store().read(["a", "b"]) == ({"b": 2} if kind == "tables" else {})
    content = file.with_suffix(".damaged") if kind == "tables" else content
    assert (content.read_bytes() if content.exists() else None) == before


def test_judgments_open_no_store(store):
    CachedLM(Local()).choice_logprobs([prompt(1)], CHOICES)
    assert not store.exists()


@pytest.mark.parametrize("call", ["stat", "touch", "mkdir"])
def test_a_store_that_may_not_be_opened_stops_no_run(call, tmp_path, store, monkeypatch):
    Store().write({"a": 1})

    def refuse(path, *_, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, call, refuse)
    assert Store().read(["a"]) == ({} if call == "stat" else {"a": 1})  # a folder that may only be read is
    Store().write({"b": 1})


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path, store, monkeypatch):
    (tmp_path / "cache").write_text("a file\n", encoding="utf-8")
    assert measured(Local())[1] == {"Likelihood": 3, "Choices": 1}
