"""What a user can correct is told in one message with exit code 2, before any model is asked."""

import json
import re
import shlex

import pytest
from commands import as_jsonl, refused, rows_of

from evalbias.data import world
from evalbias.programs import SYNTHETIC, PairwiseJudge, PointwiseJudge


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data and judges of every kind."""
    folder = tmp_path_factory.mktemp("refused")
    as_jsonl(folder / "items.jsonl", rows_of(world.examples(40, seed=5), "id", "scores"))
    documents = rows_of(world.documents(16, 4, seed=9), "id", "scores", "input_id")
    as_jsonl(folder / "outputs.jsonl", documents)
    as_jsonl(folder / "one.jsonl", [*documents[:4], {"source": "alone", "output": "x"}])
    as_jsonl(folder / "many.jsonl", rows_of(world.documents(40, 4, seed=9)))
    rated = [{"id": i, "source": f"s{i}", "output": "a " * (1 + i % 7), "mine": i % 5} for i in range(30)]
    as_jsonl(folder / "rated.jsonl", [{**row, "ratings": [k % 5, (k + k // 5) % 5]} for k, row in enumerate(rated)])
    pair = {"outputs": ["an answer", "the other answer"], "verdict": 0, "swapped": 1, "better": 1}
    as_jsonl(folder / "pairs.jsonl", [{"source": f"q{k}", **pair} for k in range(4)])
    as_jsonl(folder / "sums.jsonl", [{"id": f"i{k}", "source": "2 + 2", "answer": "4"} for k in range(4)])
    (folder / "stars.csv").write_text("data,text,stars\na,b,3\nc,d,4\ne,f,2\ng,h,5\ni,j,1\n")
    rounds = {"ranges": {"own": [-25, 0], "quality": [0, 100]}, "own": [[-1]], "quality": [[9]]}
    for name, result in {"unfinished": rounds, "unmapped": {**rounds, "loops": [{"id": 1}]}}.items():
        (folder / name).mkdir()
        (folder / name / "result.json").write_text(json.dumps(result))
    as_jsonl(folder / "empty.jsonl", [])
    as_jsonl(folder / "round.jsonl", [{"iteration": 0}])
    as_jsonl(folder / "loop.jsonl", [{"id": 1, "iteration": 0, "self_score": 3}])
    as_jsonl(folder / "map.jsonl", [{"bleu": x, "mqm": x - 25} for x in (0, 25)])
    (folder / "unmapped/run.json").write_text('{"metric": {"name": "chrf"}, "data_sha256": ""}')
    as_jsonl(folder / "bare.jsonl", [{"source": "x"}])
    as_jsonl(folder / "half.jsonl", [{"source": "x", "target_language": "en"}])
    as_jsonl(folder / "german.jsonl", [{"source": "Hund", "target_language": "English", "reference": "dog"}])
    PointwiseJudge(SYNTHETIC).save(str(folder / "scores.json"))
    PairwiseJudge(SYNTHETIC).save(str(folder / "compares.json"))
    return folder


NAMED = f"--criterion '{world.NAME}: {world.DEFINITION}'"
DATA, OUTPUTS, STARS = (f"--data {file} --lm embedded" for file in ("items.jsonl", "outputs.jsonl", "stars.csv"))
ITEMS, SAVED, COMPARES = f"{DATA} {NAMED}", f"{DATA} --judge scores.json", f"{OUTPUTS} --judge compares.json"
SCORES, CHOICES = (f"--data rated.jsonl --{kind}-field mine" for kind in ("scores", "winner"))
SUMS, MAPPED = "--data sums.jsonl --lm embedded --task mathematics", f"{STARS} --map source=data,output=text"
WIT = "--criterion 'wit: is it funny?'"
REFUSED = [  # command, what is given each time, and what else
    ("align", ITEMS, ["--scale 1-3", "--budget 0", "--judge compares.json", "-k 2"]),
    ("align", f"{MAPPED} {NAMED}", [""]),
    ("align", f"{NAMED} --data one.jsonl --lm embedded", [""]),
    ("optimize --aim likelihood", NAMED, [f"--data {name} --lm embedded" for name in ("none.jsonl", "webnlg2020")]),
    ("optimize --aim likelihood", DATA, ["--criterion wit", WIT, "--criterion summeval:fluency --scale 1-7"]),
    ("optimize --aim likelihood", DATA, ["--judge compares.json", "--judge scores.json --scale 1-5"]),
    ("optimize --aim likelihood", ITEMS, ["--split-by topic", NAMED, f"-k 2 {WIT}", "--epochs 2"]),
    ("optimize --aim likelihood", ITEMS, ["--scale 1-3", "--scale 5-1", "--scale 0.5-2", "--seed -1", "-k 0"]),
    ("optimize --aim likelihood", ITEMS, ["--bare -k 1 --out /proc/none/run", "--out ''", "--out="]),
    ("optimize --aim likelihood", f"{MAPPED},score=stars {NAMED}", [WIT]),
    ("optimize --aim likelihood", f"{MAPPED} {NAMED}", [""]),
    ("optimize --aim fairness", f"{NAMED} --data one.jsonl --lm embedded", [""]),
    ("optimize --aim fairness", f"{NAMED} {OUTPUTS}", ["", "--documents 99", "-k 2", NAMED]),
    ("optimize --aim fairness", f"{NAMED} --data many.jsonl --lm embedded", ["--pairs 10", "--language ja --bare"]),
    ("optimize --aim fairness", COMPARES, ["--instruction 'Which?'"]),
    ("optimize", ITEMS, ["--aim elegance", "--aim probe:fame", "-k 8 --judge scores.json"]),
    ("optimize", ITEMS, ["--aim probe:bold --max-loss .1", "-k 0"]),
    ("optimize", "-k 0", [f"{SAVED}", f"{COMPARES}", "--data pairs.jsonl --lm m", "--data many.jsonl --lm m"]),
    ("optimize", f"{NAMED} --data pairs.jsonl --lm embedded", ["--aim probe:", "--aim probe:bold -k 2"]),
    ("optimize", f"{NAMED} --data sums.jsonl --lm embedded", ["--map output=answer"]),
    ("optimize --aim self-bias", SUMS, ["", "--samples 3"]),
    ("optimize --aim self-bias", "--data sums.jsonl --lm embedded", ["", "--task flying"]),
    *(("judge", f"--data items.jsonl {NAMED} --lm", [lm]) for lm in ("./none", "no-such/model", "gpt-4o", "o3-mini")),
    *(("judge", f"--data items.jsonl {NAMED} --lm", [lm]) for lm in ("hosted_vllm/x", "openai/gpt-4o")),
    ("judge", DATA, ["", "--judge compares.json"]),
    ("judge", ITEMS, ["--orders 3", NAMED, "--judge scores.json"]),
    ("judge", SAVED, ["--output-label Reply", "--language ja"]),
    ("judge", "--lm embedded --judge scores.json", ["--data pairs.jsonl", "--data empty.jsonl"]),
    ("judge --rank", COMPARES, ["--scale 1-5", "--ties", "--language ja", "--output-label A"]),
    ("judge --rank", OUTPUTS, ["", f"{NAMED} {NAMED}", f"{NAMED} --language tlh", f"{NAMED} --orders 0"]),
    ("judge --rank", f"--lm embedded {NAMED}", ["--data pairs.jsonl"]),
    ("audit", "--data pairs.jsonl", ["--winner-field verdict --scores-field x", "--swapped-field x", ""]),
    ("audit", "--data none --winner-field v", ["--only position --fail-on verbosity>.2"]),
    ("audit", "--data none --scores-field v", ["--fail-on pass_or_fail>.1", "--fail-on joint>.1"]),
    ("audit", "--data items.jsonl", ["--judge scores.json", "--lm embedded"]),
    ("audit", SAVED, ["--criterion fluency", "--scale 0-100", "--task Say.", "--language ja"]),
    ("audit", CHOICES, ["--samples 3", "--scale 1-5"]),
    ("audit", SCORES, ["--language ja", "--pairs 500", "--labels 1,2", "--task 'Say it.'"]),
    ("audit", SCORES, ["--scale 1-5", "--scale five"]),
    ("audit", SCORES, ["--device cpu --api-base x", "--lm a --likelihood-lm b", "--likelihood-lm b --dialect chat"]),
    ("audit", SCORES, ["--likelihood-lm b --no-cue"]),
    ("correct", SCORES, ["--no-cue", "--language ja", "--likelihood-lm embedded --no-cue"]),
    ("jury", "--data rated.jsonl --judges mine,theirs", ["--no-cue", "--language ja"]),
    ("probe emit", "--data items.jsonl --out rows.jsonl", ["--language ja"]),
    ("refine run", SUMS, ["--metric bleu"]),
    ("refine run", "--lm embedded --task translation", ["--data german.jsonl --metric comet", "--data half.jsonl"]),
    ("refine run", "--lm embedded --task mathematics", ["--data bare.jsonl"]),
    ("refine style", SUMS, [""]),
    ("refine measure", "--data rated.jsonl --own mine", ["", "--expected mine"]),
    ("refine measure", "--data", ["round.jsonl", "loop.jsonl", "unfinished"]),
    ("refine measure", "--data unmapped", ["", "--quantile-map map.jsonl"]),
]


@pytest.mark.parametrize(
    ("command", "words"), [(command, f"{given} {one}".strip()) for command, given, more in REFUSED for one in more]
)
def test_it_is_told(folder, command, words, snapshot):
    before = sorted(folder.rglob("*"))
    _, _, told = refused(*command.split(), *shlex.split(words), cwd=folder).rpartition(" for help. ")
    told = re.sub("(Error: Invalid value for [^:]*): .*", r"\1", told)  # the rest is typer's, in words of its version
    assert told == snapshot
    assert [file for file in sorted(folder.rglob("*")) if file not in before and "runs" not in file.parts] == []
