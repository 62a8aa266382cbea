"""What a user can correct is told in one message with exit code 2, before any model is asked."""

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
    (folder / "ids.txt").write_text("elsewhere\n")
    (folder / "unfinished").mkdir()
    (folder / "unfinished/result.json").write_text('{"ranges": {}, "own": [], "quality": []}')
    as_jsonl(folder / "empty.jsonl", [])
    as_jsonl(folder / "round.jsonl", [{"iteration": 0}])
    as_jsonl(folder / "loop.jsonl", [{"id": 1, "iteration": 0, "self_score": 3}])
    as_jsonl(folder / "bare.jsonl", [{"source": "x"}])
    as_jsonl(folder / "half.jsonl", [{"source": "x", "target_language": "en"}])
    as_jsonl(folder / "german.jsonl", [{"source": "Hund", "target_language": "English", "reference": "dog"}])
    PointwiseJudge(SYNTHETIC).save(str(folder / "scores.json"))
    PairwiseJudge(SYNTHETIC).save(str(folder / "compares.json"))
    return folder


WORLD = f"'{world.NAME}: {world.DEFINITION}'"
NAMED = f"--criterion {WORLD}"
ITEMS = f"--data items.jsonl --lm embedded --criterion {WORLD}"
OUTPUTS = "--data outputs.jsonl --lm embedded"
OWN = "a saved judge has its own criterion, scale, language, task, labels and answers. Leave out"
ANY = "Say which judge: --criterion 'name: definition' for a new one, or --judge FILE."
VOTES = "In the task mathematics votes replace the answer: use --task mathematics-refiner."
STARS = "--data stars.csv --lm embedded --map source=data,output=text"
RATED, SUMS = "--data rated.jsonl", "--data sums.jsonl --lm embedded --task mathematics"
REFUSED = {
    "compile": [("likelihood", "'evalbias optimize --aim likelihood'"), ("order --lm x", "--probe order'")],
    "compile refine": [(SUMS, "'evalbias optimize --aim self-bias'")],
    "plan": [(RATED, "'evalbias audit' says how many items")],
    "runs": [("compare a b", "'evalbias drift'")],
    "measure likelihood": [(ITEMS, "'evalbias audit' with the same judge")],
    "measure preference": [(OUTPUTS, "'evalbias audit' with the same judge")],
    "measure self": [(RATED, "'evalbias refine measure'")],
    "measure style": [(SUMS, "'evalbias refine style'")],
    "measure": [("", "'evalbias refine measure'")],
    "rank": [(OUTPUTS, "'evalbias judge --rank'")],
    "skill": [("", "'skill' is now 'evalbias --skill'.")],
    "optimize --aim likelihood": [
        (f"--data none.jsonl --lm embedded --criterion {WORLD}", "none.jsonl does not exist"),
        (f"--data webnlg2020 --lm embedded --criterion {WORLD}", "names no data"),
        ("--data items.jsonl --lm embedded --criterion wit", "write it as 'name: definition'"),
        ("--data items.jsonl --lm embedded --criterion 'wit: is it funny?'", "has no score on 'wit'"),
        (f"{ITEMS} --split-by topic", "'topic' is not one of"),
        (f"{ITEMS} {NAMED}", "name each criterion once"),
        (f"{ITEMS} --scale 1-3", "outside the scale 1 to 3: correct it"),
        (f"{ITEMS} --scale 5-1", "--scale 5-1: write the lowest and the highest score"),
        (f"{ITEMS} --scale 0.5-2", "a judge answers with whole numbers"),
        (
            "--data items.jsonl --lm embedded --criterion summeval:fluency --scale 1-7",
            "criteria have a scale of their own: leave --scale out",
        ),
        (f"{ITEMS} --bare -k 1 --out /proc/none/run", "choose another folder (--out)"),
        (f"{ITEMS} --out ''", "What follows --out is empty: give a value, or leave --out out"),
        (f"{ITEMS} --out=", "What follows --out is empty"),
        (f"{ITEMS} -k 2 --criterion 'wit: is it funny?'", "has no score on 'wit'"),
        (f"{STARS},score=stars --criterion {WORLD} --criterion 'wit: is it?'", "has one score, and 2 criteria are"),
        (f"{STARS} --criterion {WORLD}", "'stars' looks like 'score': --map score=stars"),
        (f"{ITEMS} --seed -1", "Invalid value for '--seed'"),
        (f"{ITEMS} -k 0", "-k is 0: compiling needs one demonstration or more."),
        ("--data items.jsonl --lm embedded --judge scores.json --scale 1-5", f"{OWN} --scale."),
        (
            f"{ITEMS} --epochs 2",
            "--epochs is not for likelihood, only for fairness, debiased, ",
        ),
        ("--data items.jsonl --lm embedded --judge compares.json", "compares.json holds a pairwise judge"),
        (f"{ITEMS} --candidates ids.txt", "ids.txt lists 'elsewhere', which is no training item of this split (1 such"),
    ],
    "judge": [
        (f"--data items.jsonl --lm ./none {NAMED}", "./none does not exist"),
        (f"--data items.jsonl --lm hosted_vllm/x {NAMED}", "give its address with --api-base"),
        (f"--data items.jsonl --lm no-such/model {NAMED}", "'no-such/model' is neither a folder"),
        (f"--data items.jsonl --lm gpt-4o {NAMED}", "the hosted model is openai/gpt-4o"),
        (f"--data items.jsonl --lm o3-mini {NAMED}", "the hosted model is openai/o3-mini"),
        (f"--data items.jsonl --lm openai/gpt-4o {NAMED}", "it needs a key: set OPENAI_API_KEY in the env"),
        (f"{ITEMS} --orders 3", "--orders is not for scores, only for --rank: leave it out."),
        (f"{ITEMS} {NAMED}", "--criterion: quality, quality: name each criterion once."),
        ("--data items.jsonl --lm embedded", ANY),
        (f"{ITEMS} --judge scores.json", f"{OWN} --criterion."),
        ("--data items.jsonl --lm embedded --judge scores.json --output-label Reply", f"{OWN} --output-label."),
        ("--data items.jsonl --lm embedded --judge scores.json --language ja", f"{OWN} --language."),
        ("--data items.jsonl --lm embedded --judge compares.json", "pairwise judge"),
        ("--data pairs.jsonl --lm embedded --judge scores.json", "holds pairs, and this command takes one output"),
        ("--data empty.jsonl --lm embedded --judge scores.json", "holds no items: there is nothing to judge"),
        (f"{STARS} --judge scores.json --workers ray", "cannot be read in chunks; give an uncompressed"),
        (f"{ITEMS} --workers dask", "write ray, or ray:N"),
        (f"{ITEMS} --workers ray --api-base http://h/v1", "--api-base: embedded is the model that ships"),
    ],
    "optimize --aim fairness": [
        (f"{NAMED} --data one.jsonl --lm embedded", "1 documents with two different outputs"),
        (f"{NAMED} {OUTPUTS}", "needs 16 or more. Give more, or select=False (--bare)"),
        (f"{NAMED} --data many.jsonl --lm embedded --pairs 10", "--pairs 10 draws pairs of 9 of the 20 documents"),
        (f"{NAMED} {OUTPUTS} --documents 99", "needs at least 99"),
        (
            f"{NAMED} --data many.jsonl --lm embedded --language ja --bare",
            "its phrases are English. Name a model that rewords, LMParaphraser(lm) or --proposer-lm",
        ),
        (f"{NAMED} {OUTPUTS} -k 2", "-k is not for fairness, only for likelihood, self-bias and probe:KIND of a judge"),
        (f"{NAMED} {NAMED} {OUTPUTS}", "--criterion: a judge that compares has one."),
        (f"{OUTPUTS} --judge compares.json --instruction 'Which?'", f"{OWN} --instruction."),
    ],
    "optimize": [
        (f"{ITEMS} --objective fairness", "is now 'evalbias optimize --aim'."),
        (f"{ITEMS} --aim elegance", "--aim elegance is unknown: choose one of likelihood, fairness, "),
        (f"{ITEMS} --aim probe:fame", "The kind 'fame' is unknown: choose some of style, "),
        (f"{ITEMS} --aim probe:bold --max-loss .1", "--max-loss is for the aim likelihood"),
        (f"{NAMED} --data pairs.jsonl --lm embedded --aim probe:", "The kind '' is unknown: choose some of style, "),
        (
            f"{NAMED} --data pairs.jsonl --lm embedded --aim probe:bold -k 2",
            "-k is not for probe:KIND of a judge that comp",
        ),
        (f"{NAMED} --data many.jsonl --lm embedded --aim context-free", "give select=False (--bare)"),
        (f"{NAMED} --data sums.jsonl --lm embedded --map output=answer", "'evalbias doctor sums.jsonl' says what it"),
        (f"{ITEMS} -k 8 --judge scores.json", f"{OWN} --criterion."),
    ],
    "optimize --aim self-bias": [
        (SUMS, VOTES),
        (SUMS.replace("mathematics", "flying"), "--task flying is no loop's: choose one of translation, "),
        (f"{SUMS} --samples 3", "--samples is not for self-bias, only for likelihood, "),
        ("--data sums.jsonl --lm embedded", "self-bias needs --task: add it."),
    ],
    "judge --rank": [
        (f"{OUTPUTS} --judge compares.json --scale 1-5", "--scale is not for --rank, only for scores: leave it out."),
        (f"{OUTPUTS} {NAMED} {NAMED}", "--criterion: a judge that compares has one."),
        (OUTPUTS, "Give either --criterion"),
        (f"{OUTPUTS} --judge compares.json --ties", f"{OWN} --ties."),
        (f"{OUTPUTS} --judge compares.json --language ja", f"{OWN} --language."),
        (f"{OUTPUTS} --judge compares.json --output-label A", f"{OWN} --output-label."),
        (f"{OUTPUTS} --criterion {WORLD} --language tlh", "'tlh' is not one of 'en', 'ja'"),
        (f"{OUTPUTS} --criterion {WORLD} --orders 0", "Invalid value for '--orders'"),
        (f"--data pairs.jsonl --lm embedded --criterion {WORLD}", "holds pairs, and a ranking orders all outputs"),
    ],
    "audit": [
        ("--data pairs.jsonl --winner-field verdict --scores-field x", "Name one judge: a model (--lm) with a"),
        ("--data pairs.jsonl --swapped-field x", "--swapped-field goes with --winner-field"),
        ("--data pairs.jsonl", "'evalbias doctor pairs.jsonl' lists the choices"),
        ("--data none --winner-field v --only position --fail-on verbosity>.2", ">.2: --only position is tested"),
        ("--data none --scores-field v --fail-on pass_or_fail>.1", "such as pass_or_fail.tpr or pass_or_fail.tnr."),
        ("--data none --scores-field v --fail-on joint>.1", "name an estimate of joint."),
        ("--data items.jsonl --judge scores.json", "--judge answers with a model: name it with --lm"),
        ("--data items.jsonl --lm embedded", "give --criterion 'name: definition'"),
        (
            "--data items.jsonl --lm embedded --judge scores.json --criterion fluency",
            "--criterion fluency: this judge has its own, quality",
        ),
        (
            "--data items.jsonl --lm embedded --judge scores.json --scale 0-100",
            "--scale 0-100: this judge has its own, 1-5",
        ),
        ("--data items.jsonl --lm embedded --judge scores.json --task Say.", "this judge has a task of its own"),
        (
            "--data items.jsonl --lm embedded --judge scores.json --language ja",
            "--language ja: this judge has its own, en",
        ),
        (f"{RATED} --scores-field mine --language ja", "Leave out --language: no model is asked"),
        (f"{RATED} --scores-field mine --pairs 500", "Leave out --pairs: recorded answers are taken"),
        (f"{RATED} --winner-field mine --samples 3", "Leave out --samples: recorded answers are taken"),
        (f"{RATED} --scores-field mine --labels 1,2", "Leave out --labels: for choices, and --scores-field names"),
        (f"{RATED} --winner-field mine --scale 1-5", "Leave out --scale: recorded choices have no scale"),
        (f"{RATED} --scores-field mine --task 'Say it.'", "Leave out --task: no model is asked"),
        (f"{RATED} --scores-field mine --device cpu --api-base x", "Leave out --api-base, --device: no model"),
        (f"{RATED} --scores-field mine --lm a --likelihood-lm b", "Leave out --lm: recorded answers take one"),
        (f"{RATED} --scores-field mine --likelihood-lm b --dialect chat", "Leave out --dialect: for the model of"),
        (f"{RATED} --scores-field mine --scale 1-5", "'mine' of the item '0' is 0, outside the scale from 1 to 5"),
        (f"{RATED} --scores-field mine --scale five", "write the lowest and the highest score as 1-5, 0.0-1.0"),
    ],
    "refine": [(SUMS, "'evalbias refine run --task'")],
    "refine run": [
        (f"{SUMS} --feedback external", VOTES),
        (f"{SUMS} --metric bleu", "the task mathematics defines its own quality"),
        ("--data german.jsonl --lm embedded --task translation --metric comet", "'comet' is not one of 'chrf', 'bleu'"),
        (f"{SUMS} --best-of 3 --max-iterations 2", "leave --max-iterations and --program out"),
        (f"{SUMS} --aspects-api-base http://x/v1", "is the address of a judge: name it with --aspects-lm"),
        (f"{SUMS} --instructscore-prompt sums.jsonl", "is a request to a model: name it with --instructscore"),
        (f"{SUMS} --instructscore m", "--instructscore is external feedback: add --feedback external"),
        (
            "--data bare.jsonl --lm embedded --task mathematics",
            "'1' has no 'answer': the task mathematics needs it. The item",
        ),
        ("--data half.jsonl --lm embedded --task translation", "has no 'reference'"),
        (f"{SUMS} --examples sums.jsonl", "sums.jsonl is not valid JSON"),
    ],
    "refine style": [(SUMS, "has no 'output': give an output of another author")],
    "refine measure": [
        ("--data rated.jsonl --own mine --expected mine", "--own and --expected both name 'mine'"),
        ("--data rated.jsonl --own mine", "'iteration' is missing; give"),
        ("--data round.jsonl", "'id' and 'i' are missing; give"),
        ("--data loop.jsonl", "has no field 'expected'"),
        ("--data unfinished", "unfinished holds no finished run of evalbias refine run"),
    ],
}


@pytest.mark.parametrize(("command", "words", "told"), [(c, *case) for c, cases in REFUSED.items() for case in cases])
def test_it_is_told(folder, tmp_path, command, words, told):
    before = sorted(folder.rglob("*"))
    assert told in refused(*command.split(), *shlex.split(words), cwd=folder)
    assert [file for file in sorted(folder.rglob("*")) if file not in before and "runs" not in file.parts] == []
