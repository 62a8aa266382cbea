"""Columns as people write them: none is taken for another in 60 disguises, and what is printed runs as printed."""

import csv
import gzip
import json
import random
import shlex
import subprocess

import hostile
import numpy as np
import pytest
from commands import as_jsonl, evalbias, refused

import evalbias as package
from evalbias.cli.flags import as_typed
from evalbias.data.columns import recognised_columns
from evalbias.data.reading import read, table_of

ROWS, NAN = 24, np.nan


def cells(k, quality, rng):
    """Make one cell of every kind for row k; what is said of its quality errs by a point."""
    words = ["of", "the", "town", "river", "is", "old"]
    noisy = lambda: min(max(quality + rng.choice((-1, 0, 0, 1)), 0), 4)  # noqa: E731
    passed = lambda: int(quality + rng.choice((-1, 0, 0, 1)) > 1)  # noqa: E731
    said = " ".join(words[k % 6 :] + words[: k % 6]) + f" {k}."
    made = {"q": f"What is thing {k // 2} of the town?", "d": f"The document number {k // 2} says that {said}"}
    made |= {"a": f"It is {said}", "a2": f"They are {said}", "prompt": f"Judge this answer: It is {said}"}
    made |= {"15": 1 + noisy(), "51": 5 - noisy(), "01": passed(), "100": 25 * noisy(), "unit": round(noisy() / 4, 2)}
    made |= {"pf": "pass" if passed() else "fail", "yn": "Yes" if passed() else "no"}
    made |= {"ci": "correct" if passed() else "incorrect", "bool": bool(passed()), "ab": "AB"[passed()]}
    made |= {"tie": rng.choice(("A", "B", "tie")), "12": 1 + passed(), "m": ("model_a", "model_b")[passed()]}
    made |= {"list": [1 + noisy(), 1 + noisy(), 1 + noisy()], "jlist": json.dumps([1 + noisy(), 1 + noisy()])}
    made |= {"dict": {"tone": 1 + noisy(), "facts": 1 + noisy()}, "two": [f"It is {said}", f"They are {said}"]}
    made |= {"system": rng.choice(("alpha", "beta", "gamma")), "judged": rng.choice(("gpt-4o", "claude-3")), "index": k}
    made |= {"id": f"item-{k:03d}", "like": 1 + k % 5, "in": f"input-{k // 2}", "time": f"2024-03-{1 + k:02d}T10:00:00"}
    made |= {"epoch": 1710000000 + 37 * k, "far": 300 + 100 * (k % 2), "empty": "", "same": "gpt-4o", "one": 1}
    made |= {"json": json.dumps({"role": "user", "content": said}), "elo": 1000 + 13 * noisy()}
    made |= {"talk": talk(k, f"It is {said}"), "talk2": talk(k, f"They are {said}")}
    made |= {"jtalk": json.dumps(talk(k, f"It is {said}")), "asks": talk(k, "")[:-1], "voter": f"arena_user_{k % 9}"}
    made |= {"few": rng.choice(("alpaca-13b", "llama-7b")), "judges": {"gpt-4o": 1 + noisy(), "claude": 1 + noisy()}}
    made |= {"raters": {"anna": 1 + noisy(), "ben": 1 + noisy()}, "mixed": {"human": 1 + noisy(), "gpt-4": 1 + noisy()}}
    made |= {"scorers": {"Facts": noisy() / 4, "Tone": noisy() / 4}}
    made |= {"reviewed": {"Facts": noisy() / 4, "human_review": noisy() / 4}}
    made |= {"judged two": [{"judge": name, "score": 1 + noisy()} for name in ("gpt-4", "claude")]}
    made |= {"named": [{"name": name, "value": noisy() / 4} for name in ("Facts", "Tone")]}
    made |= {"calls": [{"name": name, "arguments": f"{k} apples"} for name in ("add", "divide")]}  # of an agent
    made |= {"objects": [{"annotator": who, "rating": 1 + noisy()} for who in "xy"]}
    made |= {"both": {"question": f"What is thing {k // 2} of the town?", "answer": f"It is {said}"}}
    made |= {"012": rng.randrange(3), "half": rng.choice((0, 0.5, 1)), "-101": rng.randrange(-1, 2)}
    made |= {"mqm": -45 if k == 3 else -noisy(), "share": 1 + (37 * k % 100) / 100}
    signs = ("\u274c", "\u2705\ufe0f", "\u2717", "\u2713")
    made |= {"gb": ("bad", "Good")[made["01"]], "tick": signs[made["01"]], "check": signs[2 + made["bool"]]}
    return made | {"of5": f"{made['15']}/5", "of10": f"{2 * made['51']} out of 10"}


def talk(k, answer):
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is thing {k // 2}?"}]
    return [*asked, {"role": "assistant", "content": answer}]


def rows_of(case, n=ROWS, seed=0):
    """Make the rows of a case; its columns are written ``NAME|CELLS|FIELD``, with a semicolon between them."""
    rng = random.Random(seed)
    qualities = [rng.randrange(5) for _ in range(n)]
    written = {name: kind for name, kind, *_ in columns_of(case)}  # the cells of a kind, or =ONE,OTHER in turns
    return [
        {n: kind[1:].split(",")[k % 2] if kind[0] == "=" else cells(k, q, rng)[kind] for n, kind in written.items()}
        for k, q in enumerate(qualities)
    ]


def columns_of(case):
    return [column.strip().split("|") for column in case.split(";")]


CASES = [
    # as they are often written
    "question|q|source; answer|a|output; label|pf|score; judge|pf|scores_field",
    "question|q|source; answer|a|output; label|ci|score; verdict|ci|scores_field",
    "question|q|source; answer|a|output; human|15|score; score|15|scores_field",
    "prompt|q|source; response|a|output; human_rating|15|score; llm_score|15|scores_field",
    "Prompt|q|source; Response|a|output; Human Score|15|score; Judge Score|15|scores_field",
    "userQuery|q|source; modelResponse|a|output; humanLabel|yn|score; judgeLabel|yn|scores_field",
    "instruction|q|source; completion|a|output; rater_1|15|rating; rater_2|15|rating; judge_score|15|scores_field",
    "input|q|source; output|a|output; annotator1|01|rating; annotator2|01|rating; gpt4_score|01|scores_field",
    "query|q|source; reply|a|output; label_1|pf|rating; label_2|pf|rating; judge|pf|scores_field",
    "source|q|source; output|a|output; score|15|score; judge_score|15|scores_field",
    "source|q|source; output|a|output; ratings|list|ratings; judge_score|15|scores_field",
    "source|q|source; output|a|output; ratings|jlist|ratings; judge_scores|jlist|samples_field",
    "question|q|source; context|d|; answer|a|output; expert|15|score; llm_judge|15|scores_field",
    "document|d|source; summary|a|output; model|system|system; expert_score|15|score; auto_score|15|scores_field",
    "label|pf|score; verdict|pf|scores_field",
    "verdict|bool|scores_field; human_label|bool|score",
    # in German and French
    "Frage|q|source; Antwort|a|output; Bewertung Mensch|15|score; Richter|15|scores_field",
    "Frage|q|source; Antwort|a|output; Experte_1|15|rating; Experte_2|15|rating; Urteil|15|scores_field",
    "requête|q|source; réponse|a|output; note humaine|15|score; juge|15|scores_field",
    "Entrée|q|source; Réponse|a|output; annotateur|01|score; note automatique|01|scores_field",
    "Anfrage|q|source; Ausgabe|a|output; Menschliche Note|15|score; Note KI|15|; judge|15|scores_field",
    # unrelated columns, ids and counts that look like scores
    "id|id|; time|time|; question|q|source; answer|a|output; label|01|score; judge|01|scores_field; latency|15|; "
    "note_id|15|",
    "Unnamed: 0|index|; question|q|source; answer|a|output; human|15|score; judge|15|scores_field; created|epoch|",
    "row|index|; rating_id|15|; score_version|15|; question|q|source; answer|a|output; human|15|score; "
    "judge|15|scores_field",
    "question_id|in|input_id; question|q|source; answer|a|output; human|15|score; judge|15|scores_field; turns|15|",
    "item_id|id|; question|q|source; answer|a|output; judge_model|same|; judge_reason|a2|; judge|15|scores_field; "
    "human|15|score",
    "grade|index|; question|q|source; answer|a|output; human|15|score; judge|15|scores_field",
    "label|index|; question|q|source; answer|a|output; judge|15|scores_field",
    "rating|elo|; question|q|source; answer|a|output; human|15|score; judge|15|scores_field",
    "question|q|source; answer|a|output; reference_answer|a2|; human|15|score; judge|15|scores_field",
    "judge_prompt|prompt|; question|q|source; answer|a|output; human|15|score; judge|15|scores_field",
    "prompt|prompt|; answer|a|output; human|15|score; judge|15|scores_field",
    "question|q|source; answer|a|output; human|15|score; judge|15|scores_field; meta|json|; metadata|dict|",
    # what is empty or the same
    "question|q|source; answer|a|output; human|15|score; human_2|empty|; judge|15|scores_field",
    "question|q|source; answer|a|output; human|empty|; rating|empty|; judge|15|scores_field",
    "instruction|same|; answer|a|output; human|15|score; judge|15|scores_field",
    "question|q|source; answer|a|output; model|same|; label|one|score; judge|01|scores_field",
    # what could be several things
    "question|q|source; answer|a|output; rating|15|; score|15|",
    "question|q|source; answer|a|output; rating|15|",
    "question|q|source; answer|a|; response|a2|; human|15|score; judge|15|scores_field",
    "instruction|q|; input|d|; output|a|output; human|15|score; judge|15|scores_field",
    "question|q|source; answer|a|output; anna|15|rating; ben|15|rating; judge|15|scores_field",
    "question|q|source; answer|a|output; human|15|score; judge_1|15|; judge_2|15|",
    "question|q|source; answer|a|output; human|15|score; gpt4_score|15|; claude_score|15|",
    "question|q|source; answer|a|output; human|15|; expert|15|; judge|15|scores_field",
    "question|q|source; answer|a|output; verdict|pf|; grade|15|",
    "facts|q|source; generated|a|output; opinion_1|15|rating; opinion_2|15|rating; mine|15|scores_field",
    "question|q|source; answer|a|output; judge|judged|; score|15|scores_field; human|15|score",
    # scales
    "question|q|source; answer|a|output; label|01|score; judge|15|scores_field",
    "question|q|source; answer|a|output; human|15|score; judge|51|scores_field",
    "question|q|source; answer|a|output; human|15|score; judge|100|scores_field",
    "question|q|source; answer|a|output; human|15|score; judge|unit|scores_field",
    # pairs
    "question|q|source; answer_a|a|output_1; answer_b|a2|output_2; human_preference|ab|better; "
    "judge_choice|ab|winner_field",
    "question|q|source; answer_b|a2|output_2; answer_a|a|output_1; better|tie|better; winner|tie|winner_field",
    "prompt|q|source; response_1|a|output_1; response_2|a2|output_2; label|12|better; judge|12|winner_field",
    "prompt|q|source; response_a|a|output_1; response_b|a2|output_2; model_a|system|system_1; model_b|system|system_2; "
    "human|m|better; judge|m|winner_field",
    "source|q|source; outputs|two|outputs; better|ab|better; verdict|ab|winner_field; verdict_swapped|ab|swapped_field",
    "question|q|source; output_0|a|output_1; output_1|a2|output_2; winner|ab|",
    "question|q|source; answer_a|a|output_1; answer_b|a2|output_2; human|ab|better; judge|ab|winner_field; "
    "swapped|bool|",
    "Frage|q|source; Antwort A|a|output_1; Antwort B|a2|output_2; Experte|ab|better; judge|ab|winner_field",
    # conversations
    "messages|talk|output; human|pf|score; judge|pf|scores_field",
    "id|id|; conversation|jtalk|output; rating|15|score; judge_score|15|scores_field",
    "messages|asks|source; response|a|output; human|15|score; judge|15|scores_field",
    "messages|talk|; answer|a|; human|15|score; judge|15|scores_field",
    "judge_messages|talk|; question|q|source; answer|a|output; human|15|score; judge|15|scores_field",
    "model_a|few|system_1; model_b|few|system_2; conversation_a|talk|output_1; conversation_b|talk2|output_2; "
    "winner|m|better; judge|voter|; turn|one|; anony|bool|; tstamp|epoch|",
    "model_a|few|system_1; model_b|few|system_2; conversation_a|jtalk|output_1; conversation_b|talk2|output_2; "
    "winner|m|better; judge|voter|; gpt4_winner|m|winner_field",
    "conversation_a|talk|output_1; conversation_b|talk2|output_2; winner|m|; turn|one|",
    # who said what
    "prompt|q|source; response|a|output; anna|pf|rating; ben|pf|rating; verdict|pf|scores_field",
    "task|q|source; trace|a|output; tests_passed|bool|outcome; judge|bool|scores_field; latency|15|",
    "question|q|source; answer|a|output; ground_truth|ci|score; judge|ci|scores_field",
    # in words and signs
    "question|q|source; answer|a|output; human_label|gb|score; judge|gb|scores_field",
    "question|q|source; answer|a|output; expert|tick|score; judge|check|scores_field",
    "prompt|q|source; response|a|output; rater_1|of5|rating; rater_2|of5|rating; judge_score|of5|scores_field",
    "prompt|q|source; response|a|output; human rating|of5|score; judge score|of10|scores_field",
    "question|q|source; answer|a|output; human_helpful|15|; passed|pf|; judge|15|scores_field",
    "inputs|q|source; outputs|a|output; human|15|score; judge|15|scores_field",
    # as tools for annotation write them
    "id|id|; annotator|like|; question|q|source; answer|a|output; rating|15|; gpt4_score|15|scores_field",
    "prompt|q|source; response|a|output; rating.responses|list|ratings; rating.suggestion|15|scores_field",
    "input|q|source; completion|a|output; choice|yn|; judge|yn|scores_field",
    # as benchmarks write them
    "id|id|; prompt|q|source; chosen|a|output_1; chosen_model|few|system_1; rejected|a2|output_2; "
    "rejected_model|system|system_2; subset|same|",
    "prompt|q|source; chosen|a|output_1; rejected|a2|output_2; chosen_score|15|; rejected_score|15|",
]
WRITERS = ("csv", "semicolon", "bom", "tsv", "jsonl", "json", "gz", "bar", "wrapped", "one row")


def write(folder, rows, form):
    """Write rows in one of the forms of ``WRITERS``."""
    names, separator = [*rows[0]], {"semicolon": ";", "tsv": "\t", "bar": "|"}.get(form, ",")
    if form in ("jsonl", "one row"):
        return as_jsonl(folder / "t.jsonl", rows)
    if form in ("json", "gz", "wrapped"):
        given = {"result": {"data": rows}} if form == "wrapped" else rows
        path = folder / f"t.json{'.gz' if form == 'gz' else ''}"
        content = json.dumps(given, indent=2 if form == "wrapped" else None).encode()
        path.write_bytes(gzip.compress(content) if form == "gz" else content)
        return path

    def cell(value):
        text = json.dumps(value) if isinstance(value, list | dict) else str(value)
        return '"' + text.replace('"', '""') + '"' if set(text) & set(',;|\t"\n') else text

    lines = [separator.join(map(cell, row)) for row in (names, *(row.values() for row in rows))]
    path = folder / ("t.tsv" if form == "tsv" else "t.csv")
    path.write_text(("\ufeff" if form == "bom" else "") + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def check(found, truth):
    """Assert that no column is taken for what it is not; return how many were found, of how many there are."""
    named = {field: column for field, column in found.fields.items() if field != "labels"}
    wrong = {f: column for f, column in named.items() if truth.get(column) not in (f, f.rpartition("_")[0])}
    assert not wrong, (wrong, truth)
    return sum(column in found.fields.values() for column in truth), len(truth)


def test_no_column_is_taken_for_another_and_most_are_found(tmp_path):
    counts = []
    for k, case in enumerate(CASES):
        form = WRITERS[k % len(WRITERS)]
        path = write(tmp_path, rows_of(case, n=1 if form == "one row" else ROWS, seed=k), form)
        found = check(recognised_columns(table_of(path)), truth_of(case))
        if form != "one row":  # which tells less
            counts.append(found)
    found, there = map(sum, zip(*counts, strict=True))
    assert len(counts) >= 60
    assert found >= 0.95 * there


def truth_of(case):
    return {name: role for name, _, role in columns_of(case) if role}


REAL = {  # file of published judgments -> its columns in disguise, with what they are
    "judges/ttcw_verdicts": {"source": "Prompt", "output": "Story", "ratings": "expert_labels", "gpt-4-turbo": "judge"},
    "judges/cobbler_scores": {"source": "Question", "output": "Response", "ratings": "Human Ratings", "gpt-4": "judge"},
    "judges/hanna_scores": {"system": "model", "chatgpt/prompt 1/relevance": "LLM score"},
    "judges/triviaqa_verdicts": {"source": "question", "system": "model", "human": "human_label", "GPT-4": "judge"},
    "judges/wmt23_ende_scores": {"source": "source text", "mqm": "human_mqm", "gpt-4": "judge"},
    "judges/arena_verdicts": {"source": "prompt", "better": "human_preference", "gpt-5.2": "judge_choice"},
    "judges/autoj_verdicts": {"better": "human_vote", "auto-j-13b": "verdict", "auto-j-13b/swapped": "verdict_swapped"},
    "judges/prd_verdicts": {"better": "human", "gpt-4": "judge", "gpt-4/swapped": "judge_swapped", "source": "query"},
    "judges/ice_conala_scores": {"ratings": "annotations", "gpt-3.5-turbo/no_step_no_ref": "judge"},
    "pairs/llmbar": {"source": "instruction", "outputs": "responses", "better": "gold_label"},
    "topicalchat_usr": {"context": "context", "response": "Reply", "system": "System"},
    "newsroom": {"source": "article", "summary": "summary", "doc_id": "document_id"},
    "mqm_ted": {"source": "Source", "output": "Translation", "mqm_avg": "score"},
}
FIELDS = {"context": "source", "response": "output", "summary": "output", "doc_id": "input_id", "human": "score"}
OURS = ("source", "output", "outputs", "input_id", "system", "systems", "ratings", "length", "better", "scores")
FURTHER = {"judges/wmt23_ende_scores": {"human_mqm": "score"}, "topicalchat_usr": {"context_id": "input_id"}}
JUDGES = ("judge", "LLM score", "judge_choice", "verdict", "judge_swapped", "verdict_swapped")


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_no_column_of_published_judgments_is_taken_for_another(data_dir, tmp_path, name):
    (file,) = data_dir.glob(f"{name}.jsonl*")
    names, rows = REAL[name], [row for _, row in table_of(file).rows[:400]]
    path = as_jsonl(tmp_path / "t.jsonl", [{names.get(n, n): value for n, value in row.items()} for row in rows])
    pairs = "outputs" in rows[0]
    truth = {names.get(n, n): field for n, field in ({n: n for n in OURS} | FIELDS).items() if n in rows[0]}
    truth |= {n: "swapped_field" if "swapped" in n else "winner_field" if pairs else "scores_field" for n in JUDGES}
    found, _ = check(recognised_columns(table_of(path)), truth | FURTHER.get(name, {}))
    assert found >= 2


def doctor(path, cwd):
    """Return what is printed, and the commands in it."""
    said = evalbias("doctor", path, cwd=cwd).stdout
    return said, [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  evalbias audit ")]


@pytest.mark.slow
def test_what_a_file_is_and_what_it_lacks(tmp_path):
    path = write(tmp_path, rows_of(CASES[0], n=40), "csv")
    said, _ = doctor(path.name, tmp_path)
    assert said.startswith("t.csv: a plain table: csv with 40 rows.")
    for told in ("what it may decide alone, agreement with people and verbosity", "likelihood needs", "40"):
        assert told in " ".join(said.split())
    write(tmp_path, rows_of(CASES[0]), "jsonl")
    with pytest.raises(AssertionError, match=r"holds t\.csv, t\.jsonl: name one of them"):
        doctor(tmp_path, tmp_path)


def test_the_files_of_a_folder_are_one_table(tmp_path):
    rows = rows_of(CASES[0], n=40)
    for name, some in (("a", rows[:25]), ("b", rows[25:])):
        (tmp_path / name).mkdir()
        write(tmp_path / name, some, "csv").rename(tmp_path / f"{name}.csv")
        (tmp_path / name).rmdir()
    said, (command,) = doctor(tmp_path, tmp_path)
    assert "a plain table: csv with 40 rows." in said
    audited = json.loads(evalbias(*command, "--out", "run", "--json", cwd=tmp_path).stdout)
    whole = package.audit(rows)
    assert audited["verdict"] == whole.verdict
    (tmp_path / "b.csv").write_text("question,answer\nWhat?,This.\n")
    with pytest.raises(AssertionError, match=r"b\.csv and .*a\.csv differ in the columns \['judge', 'label'\]"):
        doctor(tmp_path, tmp_path)


def test_votes_of_the_arena_are_read_with_the_texts_of_all_turns(tmp_path):
    """The Chatbot Arena publishes one column of 0 and 1 a choice, and lists of turns as JSON."""
    rng, rows = random.Random(0), []
    for k in range(30):
        chosen = rng.randrange(3)
        asked, said = [f"What is {k}?", "Why?"], [[f"{who} {k}", f"So {who} {'says ' * (k % 5)}{k}"] for who in "ab"]
        turns = 1 + k % 2
        texts = {"prompt": asked[:turns], "response_a": said[0][:turns], "response_b": said[1][:turns]}
        row = {"id": k, "model_a": "gpt-4", "model_b": "llama-7b"} | {n: json.dumps(t) for n, t in texts.items()}
        row |= {f"winner_{one}": int(c == chosen) for c, one in enumerate(("model_a", "model_b", "tie"))}
        rows.append(row | {"judge": ("model_a", "model_b", "tie (bothbad)")[chosen]})
    path = write(tmp_path, rows, "csv")
    _, (command,) = doctor(path.name, tmp_path)
    for given in ("better=winner", "output_1=response_a", "system_2=model_b"):
        assert given in command[command.index("--map") + 1].split(",")
    evalbias(*command, "--out", "run", "--json", cwd=tmp_path)
    mapping = {"source": "prompt", "output_1": "response_a", "output_2": "response_b", "better": "winner"}
    items = read(path, mapping=mapping, choices={"judge": ()})
    assert [item.better for item in items] == [item.judge for item in items]
    assert {item.better for item in items} == {0, 1, -1}
    assert items[1].source == "What is 1?"
    assert items[1].candidates[1] == "assistant: b 1\n\nuser: Why?\n\nassistant: So b says 1"


def test_chosen_and_rejected_texts_are_a_pair(tmp_path):
    texts = [{"prompt": f"What is thing {k}?", "chosen": f"It is {k}.", "rejected": f"Is {k}."} for k in range(30)]
    talks = [{n: t if n == "prompt" else [{"role": "user", "content": one["prompt"]},
                                          {"role": "assistant", "content": t}]
              for n, t in one.items()} for one in texts]  # fmt: skip
    for rows, source in ((texts, {"source": "prompt"}), (talks, {})):
        path = as_jsonl(tmp_path / "t.jsonl", [{**row, "score_chosen": 9.5, "score_rejected": 2.0} for row in rows])
        said, commands = doctor(path.name, tmp_path)
        mapping = {"output_1": "chosen", "output_2": "rejected"} | source
        given = [dict(one.split("=") for one in command[command.index("--map") + 1].split(",")) for command in commands]
        assert given == [mapping | {"better": "chosen"}, mapping]
        item = read(path, mapping=given[0])[3]
        assert (item.source, item.candidates, item.better) == ("What is thing 3?", ["It is 3.", "Is 3."], 0)
        assert "people prefer 'chosen'" in said


ANSWERED = {
    "columns": lambda value: {f"Answer.tone.{one}": str(one == value).lower() for one in range(1, 6)},
    "crowd": lambda value: {"Answer.taskAnswers": json.dumps([{"tone": {str(one): one == value for one in range(6)}}])},
    "label": lambda value: {"Answer.taskAnswers": json.dumps([{"tone": {"label": value}}])},
    "number": lambda value: {"Answer.tone": str(value)},
}


@pytest.mark.parametrize("form", ANSWERED)
def test_a_batch_of_mturk_is_read_with_a_rater_for_each_worker(tmp_path, form):
    rows = []
    for k, one in enumerate(rows_of("question|q|; answer|a|; judge_score|15|; rating|15|")):
        inputs = {f"Input.{name}": value for name, value in one.items()}  # also a rating, which no worker gave
        for worker in (k % 4, (k + 1) % 4):
            status = "Rejected" if (k, worker) == (3, 3) else "Approved"
            row = {"HITId": f"H{k}", "WorkerId": f"W{worker}", "AssignmentStatus": status, **inputs}
            rows.append(row | ANSWERED[form](1 + (k + worker) % 5))
    path = write(tmp_path, rows, "csv")
    said, (command,) = doctor(path.name, tmp_path)
    assert "an export of mturk with 24 rows" in " ".join(said.split())
    assert command[:3] == ["audit", "--data", "mturk:t.csv"]
    audited = package.audit(f"mturk:{path}")
    assert audited.judged.judge == "recorded scores 'judge_score'"
    expected = [[1, 2, NAN, NAN], [NAN, 3, 4, NAN], [NAN, NAN, 5, 1], [4, NAN, NAN, NAN]]
    np.testing.assert_array_equal(audited.judged.ratings[:4], expected)


def test_the_texts_of_a_batch_stay_as_they_are_written(tmp_path):
    texts = ["42", "true", "null", "[1, 2]", "1.50", "a text"]
    rows = [{"HITId": k, "WorkerId": "W", "Answer.good": 1, "Input.question": f"q {k}"} for k in range(6)]
    rows = [row | {"Input.reply": texts[k], "Input.mine": k} for k, row in enumerate(rows)]
    for given in (texts, texts[:1]):  # also where all of them are numbers
        path = write(tmp_path, rows[: len(given)], "csv")
        batch = read(f"mturk:{path}", mapping={"source": "question", "output": "reply"}, numbers=["mine"])
        assert [item.output for item in batch] == given
        assert [item.mine for item in batch] == [*map(float, range(len(given)))]


def test_the_json_of_label_studio_is_read_with_a_rater_for_each_annotator(tmp_path):
    rows = rows_of("prompt|q|; answer|a|; judge_score|15|; score|15|")
    tasks = []
    for k, data in enumerate(rows):
        results = [[{"from_name": "tone", "type": "rating", "value": {"rating": 1 + (k + i) % 5}}] for i in range(3)]
        results[1] = [{"from_name": "tone", "type": "choices", "value": {"choices": [str(1 + k % 4)]}}]
        results[2] += [{"from_name": "tone", "type": "number", "value": {"start": 0, "end": 3, "number": 9}}]
        given = [{"completed_by": {"id": 3, "email": f"{who}@x"}, "result": one} for who, one in enumerate(results)]
        given[0]["was_cancelled"] = k == 2
        guess = {"model_version": "v1", "result": [{"from_name": "topic", "value": {"choices": ["sums"]}}]}
        tasks.append({"id": k, "data": data, "annotations": given, "predictions": [guess]})
    path = write(tmp_path, tasks, "json")
    _, (command,) = doctor(path.name, tmp_path)
    assert command[:3] == ["audit", "--data", "label-studio:t.json"]
    audited = package.audit(f"label-studio:{path}")
    np.testing.assert_array_equal(audited.judged.ratings[:3], [[1, 1, 3], [2, 2, 4], [NAN, 3, 5]])
    mapping = {"source": "prompt", "output": "answer"}
    item = read(f"label-studio:{path}", mapping=mapping)[0]
    assert (item.source, item["data.score"], item["v1/topic"]) == (rows[0]["prompt"], rows[0]["score"], "sums")


def test_a_file_may_be_named_as_other_commands_take_it(tmp_path):
    path = write(tmp_path, rows_of(CASES[0]), "csv")
    assert evalbias("doctor", "--data", path.name, cwd=tmp_path).stdout == doctor(path.name, tmp_path)[0]
    for wrong in ([], [path.name, "--data", path.name]):
        assert "evalbias doctor FILE" in refused("doctor", *wrong, cwd=tmp_path)


def test_items_to_rate_next_are_written_as_csv_and_no_text_is_a_formula(tmp_path):
    texts = ["=1+1", "a\nb\x1b[2J", "long " * 9]
    scores = [{"judge_score": i + 1, "rating": i + 2} for i in range(3)]
    rows = [{"id": f"r{i}", "source": "q", "output": texts[i], **scores[i]} for i in range(3)]
    as_jsonl(tmp_path / "one.jsonl", rows)
    done = evalbias("doctor", "one.jsonl", "--label-next", 3, cwd=tmp_path)
    assert "The command:" in done.stderr
    first, *others = csv.DictReader(done.stdout.splitlines(keepends=True))
    assert (first["id"], first["output_1"], first["rating"]) == ("r0", "'=1+1", "")
    assert ({one["id"] for one in others}, "\x1b" in done.stdout) == ({"r1", "r2"}, False)
    assert "for the effect of length" in done.stderr
    bare = as_jsonl(tmp_path / "bare.jsonl", [{name: row[name] for name in row if name != "id"} for row in rows])
    assert evalbias("doctor", bare, "--label-next", 3, cwd=tmp_path).stdout.startswith("row,input_id,")
    ours = {"p": "rating", "j": "judge_score", "a": "output"}
    other = as_jsonl(tmp_path / "other.jsonl", [{name: row[field] for name, field in ours.items()} for row in rows])
    of_audit = ["--map", "score=p,output=a", "--scores-field", "j"]
    assert "3 with one rating" in evalbias("doctor", other, *of_audit, "--label-next", 3, cwd=tmp_path).stderr
    assert "--map, --scores-field: for --label-next" in refused("doctor", other, *of_audit, cwd=tmp_path)
    said = ["meh", "great", "meh"]
    words = as_jsonl(tmp_path / "words.jsonl", [{**row, "rating": said[i]} for i, row in enumerate(rows)])
    of_audit = ["--map", "score=rating", "--levels", "meh,great", "--scores-field", "judge_score"]
    assert "3 with one rating" in evalbias("doctor", words, *of_audit, "--label-next", 3, cwd=tmp_path).stderr
    as_jsonl(tmp_path / "one.jsonl", [{**row, "rating_2": 3} for row in rows])
    assert "none is left to rate" in refused("doctor", "one.jsonl", "--label-next", 3, cwd=tmp_path)


def test_two_conversations_share_their_beginning_as_the_source(tmp_path):
    (item,) = read([{"conversation_a": talk(4, "This."), "conversation_b": json.dumps(talk(4, "That."))}],
                   mapping={"output_1": "conversation_a", "output_2": "conversation_b"})  # fmt: skip
    assert item.source == "system: Be brief.\n\nuser: What is thing 2?"
    assert item.candidates == ["This.", "That."]
    (item,) = read([{"outputs": [talk(4, "Same."), talk(4, "Same.")]}])
    assert item.candidates == ["Same.", "Same."]
    (item,) = read([{"outputs": [talk(4, "This."), talk(6, "That.")[1:]]}])  # nothing in common: the whole
    assert item.candidates[1] == "user: What is thing 3?\n\nassistant: That."


def test_hostile_files_are_an_error_or_shown_without_what_a_terminal_obeys(tmp_path):
    worst = hostile.WORST
    rows = [{worst: k, "answer": worst, "judge": k % 2, "label": 1, "human": worst} for k in range(9)]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    done = evalbias("doctor", "t.json", cwd=tmp_path)
    hostile.check_printed(f"{done.stdout}\n{done.stderr}")
    for content in (b"", b"\x00\xff", b"[1, 2]", b"{", b"[" * 9000, b'[{"a": 1, "a": 2}]', b"[]"):
        for name in ("t.json", "t.csv", "t.jsonl", "t.parquet", "t.csv.gz"):
            (tmp_path / name).write_bytes(content)
            done = evalbias("doctor", name, cwd=tmp_path, check=False)
            assert done.returncode in (0, 2), done.stderr
            hostile.check_printed(f"{done.stdout}\n{done.stderr}")
    assert evalbias("doctor", "none.csv", cwd=tmp_path, check=False).returncode == 2


@pytest.mark.parametrize("name", ["my\nscore's", "\x1b[31m \\score\x07", "##[error]a\n::error::\u202eb"])
def test_the_command_names_any_column_without_what_a_terminal_obeys(name, tmp_path):
    people = [{"rating_1": k % 4 + 1, "rating_2": (k + 1) % 4 + 1} for k in range(40)]
    rows = [{"source": f"s{k}", "output": "o" * (k + 1), name: k % 5 + 1} | people[k] for k in range(40)]
    (path := tmp_path / "t.json").write_text(json.dumps(rows))
    said = evalbias("doctor", path.name, cwd=tmp_path).stdout
    hostile.check_printed(said)
    (command,) = [line for line in said.splitlines() if "evalbias audit" in line]
    in_bash = ["bash", "-c", f"printf '%s\\0' {command}"]
    _, *words = subprocess.run(in_bash, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    assert name in words
    evalbias(*words, cwd=tmp_path)


def test_several_raters_are_named_at_once_and_columns_are_read_in_python_too(tmp_path):
    path = write(tmp_path, rows_of("output|a|; anna|15|; ben|15|; mine|15|"), "csv")
    one, two = read(path, mapping={"ratings": "anna,ben"}), read(path, mapping={"rating_1": "anna", "rating_2": "ben"})
    assert [item.ratings for item in one] == [item.ratings for item in two]
    audited = package.audit(path, mapping={"ratings": "anna, ben"}, scores_field="mine")
    assert audited.judged.ratings.shape == (ROWS, 2)
    rows = rows_of(CASES[0], n=40)
    mapping = {"source": "question", "output": "answer", "score": "label"}
    assert package.audit(rows).answer == package.audit(rows, mapping=mapping, scores_field="judge").answer


def questions(rows, tmp_path):
    found = recognised_columns(table_of(as_jsonl(tmp_path / "t.jsonl", rows)))
    return found, {question.about: question for question in found.questions}


@pytest.mark.parametrize("name", ["judge_model", "model", "judge", "rater", "annotator_name"])
def test_scores_of_several_judges_in_one_column_are_not_mixed(tmp_path, name):
    rows = rows_of("question|q|; answer|a|; human_score|15|; judge_score|15|")
    _, asked = questions([{**row, name: who} for row in rows for who in ("gpt-4", "claude")], tmp_path)
    assert name in asked


def test_criteria_of_a_judge_in_rows_are_not_pooled(tmp_path):
    rows = rows_of("question|q|; output|a|; human|15|; llm_score|15|")
    twice = [(k + len(m), row, m) for k, row in enumerate(rows) for m in ("facts", "tone")]
    rows = [{**row, "metric": m, "llm_score": 1 + k % 5} for k, row, m in twice]
    _, commands = doctor(as_jsonl(tmp_path / "t.jsonl", rows), tmp_path)
    assert [command[-1] for command in commands] == ["facts/llm_score", "tone/llm_score"]
    with pytest.raises(ValueError, match="are not pooled"):
        package.audit(rows, mapping={"score": "human"}, scores_field="llm_score")


@pytest.mark.parametrize("rows", [
    rows_of("question|q|; answer_a|a|; answer_b|a2|; winner|ab|; judge|=expert_1,gpt4_pair|"),
    [{"run": {"id": 1}}] * 3 + [{"data": {"prompt": f"Is it {k}?"}} for k in range(9)],  # other columns
])  # fmt: skip
def test_people_and_judges_in_one_column_and_rows_of_events_take_no_command(tmp_path, rows):
    said, commands = doctor(as_jsonl(tmp_path / "t.jsonl", rows), tmp_path)
    assert not commands
    assert "keep the rows of one judge" in said or "cannot read it yet" in said


def test_what_quality_may_explain_cannot_be_measured(tmp_path):
    said, _ = doctor(write(tmp_path, rows_of("question|q|; answer_a|a|; answer_b|a2|; judge|ab|"), "csv"), tmp_path)
    assert "Can be measured: nothing yet." in said
    assert "position needs choices in both orders" in " ".join(said.split())


TASK = "task|q|source; kind|same|; trace|a|output"
ASKED = [  # columns, beside a question and an answer where none are named
    # people and judges stay apart
    "human_fluency|15|; human_facts|15|; judge_fluency|15|; judge_facts|15|",
    "correct|bool|; judge_correct|bool|",
    "Tone (Anna)|15|; Tone (Ben)|15|; Facts (Anna)|15|; Facts (Ben)|15|; Tone (GPT-4)|15|; Facts (GPT-4)|15|",
    # one name of a person may be anything, a further one is not known, and two columns of one name are one person's
    "anna|15|; judge|15|scores_field",
    "anna|15|rating; ben|15|rating; wei|15|; judge|15|scores_field",
    "anna_1|15|; anna_2|15|; judge|15|scores_field",
    "human_score|15|score; judge_score|15|scores_field; annotator|=anna,ben|",
    # people named with a criterion come before what passed
    "human_helpful|15|; passed|pf|; judge|15|scores_field",
    "human_helpful|pf|; passed|pf|",
    "answer_2|a2|; judge|15|scores_field",
    "human_1|15|rating; human_2|pf|rating; judge|15|scores_field",
    # numbers of persons are no ratings
    "rater|like|; rating|15|; judge|15|",
    "annotator|like|; score|15|",
    "human|15|score; judge|like|; score|15|",
    # ratings that cannot be read are not left out in silence
    "human_label|=great,poor|; judge_score|15|scores_field",
    "human_1|15|rating; human_2|15|rating; human_3|=4,-|; judge_score|15|scores_field",
    "judge|=4/5,2/10|; human|15|score",
    "judge|far|; human|15|score",
    # an outcome on any scale, and none is a second rater of the other
    *(f"{TASK}; {name}|bool|; judge|100|scores_field" for name in ("outcome", "tests_passed", "resolved")),
    "task|q|source; trace|a|output; resolved|bool|; solved|bool|; judge|100|scores_field",
]


@pytest.mark.parametrize("columns", ASKED)
def test_what_names_do_not_tell_is_asked(tmp_path, columns, snapshot):
    case = columns if columns.startswith("task") else f"question|q|source; answer|a|output; {columns}"
    found, asked = questions(rows_of(case), tmp_path)
    check(found, truth_of(case))
    questioned = {about: [question.why, *map(dict, question.answers)] for about, question in asked.items()}
    assert {"columns": found.fields, **questioned} == snapshot


QA, PAIR = "question|q|; answer|a|", "question|q|; answer_a|a|; answer_b|a2|"
BOTH = "prompt|q|; chosen|a|; rejected|a2|"
ROLES = {  # columns -> fields that are certain besides the texts, and the answers to what is asked
    # people and judges in one object, or a list of objects
    f"{QA}; scores|judges|; human_1|15|; human_2|15|": (
        {"rating_1": "human_1", "rating_2": "human_2"},
        [[{"scores_field": "scores.claude"}, {"scores_field": "scores.gpt-4o"}]],
    ),
    f"{QA}; ratings|raters|; judge_score|15|": (
        {"rating_1": "ratings.anna", "rating_2": "ratings.ben", "scores_field": "judge_score"}, []),
    f"{QA}; scores|mixed|": ({"score": "scores.human", "scores_field": "scores.gpt-4"}, []),
    f"{QA}; scores|scorers|; human_review|unit|": (
        {}, [[{"score": "human_review", "scores_field": f"scores.{name}"} for name in ("Facts", "Tone")]]),
    f"{QA}; scores|reviewed|": ({}, [[{"score": "scores.human_review", "scores_field": "scores.Facts"}]]),
    f"span_id|id|; root_span_id|id|; {QA}; scores|scorers|": ({},  # of a log, and nobody's for certain
        [[{"score": f"scores.{a}", "scores_field": f"scores.{b}"} for a, b in (("Tone", "Facts"), ("Facts", "Tone"))]]),
    f"{QA}; human|15|; tags|named|; tools|calls|; judge|15|": ({"score": "human", "scores_field": "judge"}, [[]]),
    f"{QA}; human|15|; judgments|judged two|": ({"score": "human"}, [[]]),
    "source|q|; system_output|a|; human|15|; judge|15|": ({"score": "human", "scores_field": "judge"}, []),
    f"{QA}; annotations|objects|; judge|15|": ({"ratings": "annotations.rating", "scores_field": "judge"}, []),
    "fields|both|; human|15|; judge|15|": (
        {"source": "fields.question", "output": "fields.answer", "score": "human", "scores_field": "judge"}, []),
    # ranks, 1 for the best
    f"{QA}; human_rank_1|51|; human_rank_2|51|; llm_rank|51|": (
        {"rating_1": "human_rank_1", "rating_2": "human_rank_2", "scores_field": "llm_rank"},
        [[{"rating_1": "-human_rank_1", "rating_2": "-human_rank_2", "scores_field": "-llm_rank"}, {}]],
    ),
    f"{QA}; human|15|; judge|51|": (
        {"score": "human", "scores_field": "judge"}, [[{"scores_field": "-judge"}, {"score": "-human"}, {}]]),
    # a flag that says whether the chosen output won
    f"{BOTH}; results|half|": (
        {},
        [[{"better": "chosen"}, {}], [{"winner_field": "results"}], [{"labels": "1,0,0.5"}, {"labels": "0,1,0.5"}]],
    ),
    f"{BOTH}; better|=A,A|; judge|01|": (
        {"better": "better", "winner_field": "judge"}, [[{"labels": "1,0,0.5"}, {"labels": "0,1,0.5"}]]),
    # choices in numbers
    f"{PAIR}; human|012|; judge|012|": (
        {"better": "human", "winner_field": "judge"},
        [[{"labels": one} for one in ("0,2,1", "2,0,1", "1,2,0", "2,1,0")]],
    ),
    f"{PAIR}; human|-101|; judge|-101|": (
        {"better": "human", "winner_field": "judge"}, [[{"labels": one} for one in ("0,1,-1", "1,-1,0", "-1,1,0")]]),
    f"{PAIR}; preference|12|": (
        {}, [[{"better": "preference"}, {"winner_field": "preference"}], [{"labels": "1,2"}, {"labels": "2,1"}]]),
    # choices in two codes: each column by itself
    f"{PAIR}; human|=text_1,text_2|; judge|=left,right|": (
        {"better": "human", "winner_field": "judge"},
        [[{"winner_field": "", "labels": "text_1,text_2"}, {"better": "", "labels": "left,right"}]],
    ),
    f"{PAIR}; human|=text_1,text_2|; judge|012|": (
        {"better": "human", "winner_field": "judge"},
        [[{"winner_field": "", "labels": "text_1,text_2"},
          *({"better": "", "labels": one} for one in ("0,2,1", "2,0,1", "1,2,0", "2,1,0"))]],
    ),
    f"{PAIR}; human|12|; preference|share|": (  # 1 + P beside 1 and 2
        {"better": "human"}, [[{"winner_field": "preference"}], [{"labels": "1,2,1.5"}, {"labels": "2,1,1.5"}]]),
    f"{PAIR}; preference|share|": ({}, [[{"winner_field": "preference"}], [{"labels": "1,2"}, {"labels": "2,1"}]]),
    # another scale, and one number that is far from the others
    f"{QA}; human_1|15|; human_2|pf|; judge|15|": (
        {"rating_1": "human_1", "rating_2": "human_2", "scores_field": "judge"},
        [[{"rating_2": ""}, {"rating_1": ""}]]),
    f"{QA}; mqm_human|mqm|; gpt-4|100|": ({}, [[{"score": "mqm_human", "scores_field": "gpt-4"}]]),
    f"{QA}; human|mqm|; gpt-4|15|": ({"score": "human"}, [[{"scores_field": "gpt-4"}]]),
    # headers with dots, as a tool flattens its objects
    "inputs.query|q|; inputs.response|a|; inputs.label_1|15|; inputs.label_2|15|; outputs.judge.score|15|": (
        {"source": "inputs.query", "output": "inputs.response", "rating_1": "inputs.label_1",
         "rating_2": "inputs.label_2"}, [[{"scores_field": "outputs.judge.score"}]]),
    # one output beside two, an instruction that is the same in all rows, and choices of places
    f"{PAIR}; response|a2|; human|15|; judge|15|": ({"score": "human", "scores_field": "judge"}, [[]]),
    "instruction|=Be brief.,Be brief.|; answer|a|; human|15|; judge|15|": (
        {"score": "human", "scores_field": "judge"}, [[{"source": "instruction"}, {}]]),
    f"{PAIR}; human|=A,B|; judge|=A,B|; judge_swapped|=B,A|": (
        {"better": "human", "winner_field": "judge"}, [[{"swapped_field": "judge_swapped"}, {}]]),
    # of a company's support, and automatic metrics on scales of their own, which are not several people's
    "Ticket Text|q|; Agent Reply|a|; Agent / Model|few|; human|15|; judge|15|": (
        {"source": "Ticket Text", "output": "Agent Reply", "system": "Agent / Model", "score": "human",
         "scores_field": "judge"}, []),
    f"{QA}; ease/v1/score|100|; sme_score|15|; tone/v1/score|unit|": (
        {"score": "sme_score"}, [[{"scores_field": "ease/v1/score"}, {"scores_field": "tone/v1/score"}]]),
    f"{QA}; ease|100|; tone|unit|; judge|15|": ({"scores_field": "judge"}, [[{"score": "ease"}, {"score": "tone"}]]),
    # an input without a text, and a writer
    "prompt_id|in|; answer|a|; human|15|; judge|15|": (
        {"input_id": "prompt_id", "score": "human", "scores_field": "judge"}, []),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(CASES) + len(ROLES)))
def test_each_command_runs_as_it_is_printed(tmp_path, k):
    path = write(tmp_path, rows_of([*CASES, *ROLES][k], n=24, seed=k), "csv" if k % 2 else "jsonl")
    said, commands = doctor(path.name, tmp_path)
    assert "cannot read it yet" not in said
    for command in commands:
        named = ["embedded" if word == "MODEL" else word for word in command]
        probes = [] if named == command else ["--probe", "none"]
        evalbias(*named, *probes, "--out", "run", "--json", cwd=tmp_path)
        for file in (tmp_path / "run").iterdir():
            file.unlink()
    found = recognised_columns(table_of(path))
    assert ("Left to you" in said) == bool(found.questions)
    done = evalbias("audit", "--data", path.name, "--json", cwd=tmp_path, check=False)
    assert done.returncode == (2 if found.questions or found.judge is None else 0)  # an audit guesses nothing
    assert "evalbias doctor" in done.stderr
    assert all(as_typed(one.why) in done.stderr for one in found.questions)


@pytest.mark.parametrize("columns", ROLES)
@pytest.mark.parametrize("form", ["csv", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_a_role_is_taken_where_one_reading_fits_and_asked_for_where_two_do(columns, form, tmp_path):
    certain, answers = ROLES[columns]
    found = recognised_columns(table_of(write(tmp_path, rows_of(columns, n=60), form)))
    texts = ("source", "output", "output_1", "output_2")
    assert {n: c for n, c in found.fields.items() if n not in texts or n in certain} == certain
    assert [[*map(dict, one.answers)] for one in found.questions] == answers


def test_the_majority_of_people_is_no_judge(tmp_path):
    rows = rows_of(f"{PAIR}; annotator1|ab|; annotator2|ab|; annotator3|ab|; winner|ab|", n=40)
    votes = [[row[f"annotator{k}"] for k in (1, 2, 3)] for row in rows]
    rows = [{**row, "winner": max("AB", key=some.count)} for row, some in zip(rows, votes, strict=True)]
    found, asked = questions(rows, tmp_path)
    assert found.judge is None
    assert "is the majority of 'annotator1', 'annotator2', 'annotator3'" in asked["winner"].why
    assert [*map(dict, asked["winner"].answers)] == [{"winner_field": "winner"}, {}]
    rows[votes.index(["A", "A", "B"])]["winner"] = "B"
    assert questions(rows, tmp_path)[0].judge == "winner"


def test_a_writer_is_one_where_an_output_repeats(tmp_path):
    rows = rows_of(f"{QA}; model|system|; human|15|; judge|15|", n=40)
    rows[1] = {**rows[0], "model": "delta"}
    found, asked = questions(rows, tmp_path)
    assert found.fields["system"] == "model"
    assert not asked


def test_one_row_a_person_and_one_column_an_item_is_to_be_transposed(tmp_path):
    rows = [{"Time": f"2026-01-{k + 1:02d}", "Who": f"P{k}"} | {f"Rate answer {i}": 1 + (k + i) % 5 for i in range(30)}
            for k in range(12)]  # fmt: skip
    path = write(tmp_path, rows, "csv")
    said, commands = doctor(path.name, tmp_path)
    assert not commands
    assert "transpose it" in said
    with pytest.raises(ValueError, match="transpose it"):
        package.audit(path)


@pytest.mark.parametrize("column", ["llm_grade|=C,B|", "llm_grade|far|", "gpt-4 rating|=*,**|"])
def test_a_judges_column_that_is_not_read_is_named_in_place_of_a_model(column, tmp_path):
    path = write(tmp_path, rows_of(f"{QA}; human|15|; {column}"), "csv")
    said, commands = doctor(path.name, tmp_path)
    assert not commands
    assert "MODEL" not in said
    assert f"{column.partition('|')[0]!r} holds 2 different values" in said


def test_answers_that_are_not_printed_are_counted(tmp_path):
    names = "; ".join(f"{name}_score|15|" for name in ("anna", "ben", "carl", "dora", "emil", "fred", "gina", "hans"))
    path = write(tmp_path, rows_of(f"question|q|; answer|a|; {names}"), "csv")
    said, commands = doctor(path.name, tmp_path)
    assert len(commands) == 6
    assert "Not listed: 2 more commands" in said


@pytest.mark.parametrize("people", ["label|pf|", "human|pf|", "anna|pf|; ben|pf|"])
@pytest.mark.parametrize("judge", ["verdict", "judge", "score"])
def test_names_as_people_write_them_take_one_command(judge, people, tmp_path):
    path = write(tmp_path, rows_of(f"question|q|; answer|a|; {people}; {judge}|pf|"), "csv")
    judged = package.audit(path).judged
    assert judged.ratings.shape[1] == people.count("pf")
    assert judged.judge in (f"recorded scores '{judge}'", f"recorded scores 'judge_{judge}'")


def test_a_column_of_texts_named_like_a_person_is_not_said_to_be_named_like_ratings(tmp_path):
    path = write(tmp_path, rows_of("question|q|; answer|a|; rosa|a|; human|15|; judge|15|"), "csv")
    assert "although its name says ratings" not in doctor(path.name, tmp_path)[0]


@pytest.mark.parametrize("names", ["anna; ben", "rater_1; rater_2"])
def test_the_mean_of_people_is_no_judge_without_being_asked_for(names, tmp_path):
    first, second = names.split("; ")
    rows = rows_of(f"question|q|; answer|a|; {first}|15|; {second}|15|")
    rows = [{**row, "score": (float(row[first]) + float(row[second])) / 2} for row in rows]
    found, asked = questions(rows, tmp_path)
    assert f"is the mean of '{first}', '{second}'" in asked["score"].why
    assert [*map(dict, asked["score"].answers)] == [{"scores_field": "score"}, {}]
    assert found.judge is None


@pytest.mark.parametrize(("column", "code"), [("judge_score", 0), ("judge_score", -1), ("human_1", 9)])
def test_values_that_may_be_failures_take_a_command_for_each_answer_and_no_question_of_scales(column, code, tmp_path):
    rows = rows_of(f"{QA}; human_1|15|; human_2|15|; judge_score|15|", n=90)
    path = write(tmp_path, [row | {column: code} if k % 9 == 0 else row for k, row in enumerate(rows)], "csv")
    said, commands = doctor(path.name, tmp_path)
    assert [command[-2:] for command in commands] == [["--missing", str(code)], ["--keep", str(code)]]
    assert said.count(f"is {code} in 10 of 90 cells") == said.count("Left to you") == 1
    for command in commands:
        evalbias(*command, "--out", f"run{command[-2]}", "--json", cwd=tmp_path)


@pytest.mark.parametrize("step", [1, 5, 10])
def test_two_scales_in_one_column_are_asked_about(step, tmp_path):
    rng, rows = random.Random(step), rows_of(f"{QA}; human|15|; judge_score|15|", n=90)
    high = [step * rng.randrange(40 // step, 100 // step) for _ in rows]
    one_scale = [row | {"judge_score": score} for row, score in zip(rows, high, strict=True)]
    path = write(tmp_path, [(row, one_scale[k])[k % 2] for k, row in enumerate(rows)], "csv")
    options = {"mapping": {"output": "answer", "score": "human"}, "scores_field": "judge_score"}
    for keep in ([], [1, 2]):
        with pytest.raises(ValueError, match=r"'judge_score' is 1 to 5 in 45 of 90 cells, .* one: `keep` 1,2,3,4,5"):
            package.audit(path, **options, keep=keep)
    _, commands = doctor(path.name, tmp_path)
    assert [command[command.index("--keep") + 1] for command in commands] == ["1,2,3,4,5"] * 2  # with a scale, and not
    evalbias(*commands[0], "--out", "run", "--json", cwd=tmp_path)
    package.audit(one_scale, **options)


def test_games_of_fastchat_are_a_judges_choices_in_both_orders(tmp_path):
    rows = rows_of("question|q|; answer_1|a|; answer_2|a2|; model_1|few|; model_2|few|; g1_winner|m|; g2_winner|m|", 60)
    for k, row in enumerate(rows):
        row["g1_winner"] = "error" if k % 20 == 3 else row["g1_winner"].replace("a", "1").replace("b", "2")
        row["g2_winner"] = "error" if k % 15 == 4 else "tie" if k % 6 == 0 else row["g1_winner"]
    path = as_jsonl(tmp_path / "t.jsonl", rows)
    said, (command,) = doctor(path.name, tmp_path)
    options = "--winner-field g1_winner --swapped-field g2_winner --labels model_1,model_2,tie --missing error"
    assert (command[-8:], said.count("cannot read it yet")) == (options.split(), 0)
    audited = json.loads(evalbias(*command, "--out", "run", "--json", cwd=tmp_path).stdout)
    assert (audited["judge"], audited["n"]) == ("recorded choices 'g1_winner'", 60)
    textless = [{n: v for n, v in row.items() if n not in ("answer_1", "answer_2", "question")} for row in rows]
    said, commands = doctor(as_jsonl(tmp_path / "no_texts.jsonl", textless).name, tmp_path)
    assert not commands
    assert "add their texts as 'output_1' and 'output_2'" in said


@pytest.mark.parametrize(("first", "second"), [("A", "B"), ("model_1", "model_2"), ("", "")])
def test_a_tie_with_its_reason_in_brackets_is_a_tie(first, second, tmp_path):
    ties, labels = ("tie", "tie (inconsistent)"), (first, second, "tie") if first == "model_1" else ()
    rows = rows_of(f"{PAIR}; human|tie|; model_a|=gpt-4,llama-7b|; model_b|=llama-7b,gpt-4|; judge|ab|", n=40)
    for k, row in enumerate(rows):
        names = {"A": first or row["model_a"], "B": second or row["model_b"]}
        row["judge"] = ties[k % 2] if k < 8 else names[row["judge"]]
    path = as_jsonl(tmp_path / "a.jsonl", rows)
    options = recognised_columns(table_of(path)).options()
    assert (options["winner_field"], options.get("labels", ())) == ("judge", labels)
    mapping, choices = options["mapping"], {"judge": labels}
    items, without = (read(path, mapping=mapping, choices=choices, missing=codes) for codes in ((), [ties[1]]))
    assert [e.judge for e in items[:8]] == [-1] * 8
    assert [e.judge for e in without[:8]] == [-1, None] * 4
    assert {e.judge for e in without[8:]} == {0, 1}


def test_a_judges_column_with_one_value_tells_no_rows_apart():
    rows = [row | {"judge": ["gpt-4", "pair"]} for row in rows_of(f"{PAIR}; winner|ab|", n=40)]  # FastChat's
    columns = recognised_columns(table_of(rows))
    assert [question.about for question in columns.questions] == ["people's or the judge's ratings"]
    assert not columns.unread


def test_lists_of_choices_are_asked_for_as_columns(tmp_path):
    rows = [row | {"annotators": [k % 3, k % 2, 1]} for k, row in enumerate(rows_of(PAIR))]
    assert "give each person a column, such as better_1" in questions(rows, tmp_path)[1]["annotators"].why


def test_an_object_of_raters_is_read_as_doctor_maps_it(tmp_path):
    rows = rows_of("question|q|source; answer|a|output; ratings|raters|; judge|15|")
    path = as_jsonl(tmp_path / "t.jsonl", [row | {"output": row["answer"]} for row in rows])
    expected = [[float(row["ratings"][name]) for name in ("anna", "ben")] for row in rows]
    assert [item.ratings for item in read(path)] == expected
    assert "rating_1=ratings.anna,rating_2=ratings.ben" in doctor(path.name, tmp_path)[0]
    assert read([{"output": "a", "ratings": {"anna": 3}}])[0].ratings == [3]
    with pytest.raises(ValueError, match="the ratings on 'tone' are 3; write a list"):
        read([{"output": "a", "ratings": {"tone": 3}}])


def test_a_judge_that_is_known_is_not_asked_for(tmp_path):
    path = write(tmp_path, rows_of("question|q|; answer|a|; human|15|; judge|100|"), "csv")
    with pytest.raises(ValueError, match=r"^The column 'judge' is .* \(scale:"):
        package.audit(path)


def test_an_export_of_several_judges_and_criteria_has_a_command_for_each(tmp_path):
    rng, traces = random.Random(0), []
    for k in range(20):
        who = [("HUMAN", "ann"), ("HUMAN", "ben"), ("LLM_JUDGE", "gpt"), ("LLM_JUDGE", "claude")]
        info = {"trace_id": f"t{k}", "request_preview": f"Question {k}?", "response_preview": "word " * (1 + k % 7)}
        info["assessments"] = [
            {"assessment_name": name, "source": {"source_type": kind, "source_id": one}}
            | {"feedback": {"value": rng.randrange(5)}}
            for kind, one in who
            for name in ("facts", "tone")
        ]
        traces.append({"info": info})
    path = as_jsonl(tmp_path / "t.jsonl", traces)
    said, commands = doctor(path.name, tmp_path)
    named = [(judge, name) for judge in ("gpt", "claude") for name in ("facts", "tone")]
    assert [command[-3:] for command in commands] == [[f"{a}/{name}", "--criterion", name] for a, name in named]
    assert "although its name says ratings" not in " ".join(said.split())
    evalbias(*commands[-1], "--out", "run", "--json", cwd=tmp_path)


def test_of_a_wide_table_the_columns_are_looked_at_whose_names_tell_something(tmp_path):
    rows = rows_of("question|q|; answer|a|; human|15|; judge|15|")
    wide = [{**{f"emb_{i}": i / 7 for i in range(3000)}, **row} for row in rows]
    said, (command,) = doctor(write(tmp_path, wide, "csv").name, tmp_path)
    assert "Of its 3004 columns, 200 are looked at:" in " ".join(said.split())
    assert "up to 'emb_195'" in " ".join(said.split())
    assert "output=answer,source=question,score=human" in command
    assert package.audit(wide).answer == package.audit(rows).answer


def test_the_actual_output_is_judged(tmp_path):
    case = "question|q|source; expected_output|a2|; actual_output|a|output; label|01|score; judge|01|scores_field"
    assert check(questions(rows_of(case), tmp_path)[0], truth_of(case)) == (4, 4)


def test_a_text_in_a_judges_prompt_is_not_taken_for_the_judges_own(tmp_path):
    """As in Prometheus' data, where ``output`` is what the judge wrote."""
    rows = [
        {"orig_instruction": f"Explain {k}.", "orig_response": f"This explains {k} well.", "orig_score": 1 + k % 5}
        | {"output": f"It is good, since {k}. [RESULT] {1 + k % 5}", "gpt4_score": 1 + k % 4}
        for k in range(40)
    ]
    for row in rows:
        row["instruction"] = f"Judge. Instruction: {row['orig_instruction']} Response: {row['orig_response']} Score:"
    found, asked = questions(rows, tmp_path)
    assert found.fields == {"source": "orig_instruction", "scores_field": "gpt4_score"}
    assert asked["output"].answers == [{"output": "orig_response"}, {"output": "output"}]
    # a writer's input may hold another text, too
    for held in ("context", "previous_response", "expected_answer"):
        rag = [{held: f"Facts of {k}: it is new.", "answer": f"It is {k} days old."} for k in range(40)]
        found, _ = questions([{"prompt": f"Use {row[held]} Answer.", **row} for row in rag], tmp_path)
        assert found.fields["output"] == "answer"


def runs(n=60):
    """Make runs of an agent with an outcome, a judge who likes long traces, and what people say of other things."""
    rng, rows = random.Random(3), []
    for k in range(n):
        passed, words = rng.random() < 0.5, rng.randrange(5, 60)
        says = int(rng.random() < (0.5 if passed else 0.1) + 0.006 * words)
        trace = f"run {k}: {'step ' * words}"
        texts = {"task": f"task {k // 4}", "trace": trace, "agent": "xy"[k % 2]}
        rows.append({**texts, "passed": passed, "judge": says, "rating_1": 1 + k % 5})
    return rows


@pytest.mark.parametrize("words", [("yes", "no"), ("PASS", "fail"), (True, False), (1, 0), ("1.0", "0")])
def test_an_outcome_is_a_rating_without_error(tmp_path, words):
    rows = [{**row, "passed": words[not row["passed"]]} for row in runs()]
    mapping = {"source": "task", "output": "trace"}
    audited = package.audit(write(tmp_path, rows, "csv"), mapping=mapping, scores_field="judge", outcome="passed")
    plain = [{name: value for name, value in row.items() if name != "rating_1"} for row in runs()]
    plain = [{**row, "passed": int(row["passed"])} for row in plain]
    mapping |= {"score": "passed"}
    rated = package.audit(plain, mapping=mapping, scores_field="judge", reliability=1.0)
    assert audited["verbosity"].estimates == rated["verbosity"].estimates
    assert audited["verbosity"]["length_effect"].reliability == 1
    assert audited.verdict == rated.verdict


def test_an_outcome_leaves_the_judges_columns_alone(tmp_path):
    rows = [{"source": row["task"], "output": row["trace"], "passed": row["passed"]} for row in runs()]
    whole = [{**row, "judge": one["judge"]} for row, one in zip(rows, runs(), strict=True)]
    expected = package.audit(whole, scores_field="judge", outcome="passed")["verbosity"].estimates
    for name in ("label_judge", "better_judge"):
        named = [{**row, name: one["judge"]} for row, one in zip(rows, runs(), strict=True)]
        assert package.audit(named, scores_field=name, outcome="passed")["verbosity"].estimates == expected
    for people in ("ratings.quality", "scores.quality", "label", "label_2", "rating_1"):
        rated = [{**row, people: "[1, 2]" if "ratings" in people else k % 3} for k, row in enumerate(whole)]
        path = write(tmp_path, rated, "csv")
        assert package.audit(path, scores_field="judge", outcome="passed")["verbosity"].estimates == expected


def test_an_outcome_of_pairs_says_which_is_better():
    rows = [{"outputs": [f"a {k}", f"bb {k}"], "sold": "AB"[k % 2], "judge": "AB"[k % 3 == 0]} for k in range(40)]
    audited = package.audit(rows, winner_field="judge", outcome="sold")
    assert audited.judged.chosen.tolist() == [1 - k % 2 for k in range(40)]


def test_an_outcome_stands_alone(tmp_path):
    path = write(tmp_path, runs(), "csv")
    for options, match in (
        ({"outcome": "passed", "reliability": 0.8}, "an outcome has no error"),
        ({"outcome": "passed", "mapping": {"rating_1": "rating_1"}}, "the outcome 'passed' is the only rating: leave"),
        ({"outcome": "pased"}, "no column 'pased' for 'outcome'.* Did you mean outcome=passed"),
    ):
        with pytest.raises(ValueError, match=match):
            package.audit(path, scores_field="judge", **options)
    assert package.audit(path, outcome="passed").judged.judge == "recorded scores 'judge'"  # whose column is found
