"""The gallery: an invented judge of each kind, what the page says of it, and a real one against its known figures."""

import gzip
import json
import re

import numpy as np
import pytest

from benchmarks import gallery
from benchmarks.harness import ROOT

PAGES = ("README.md", "docs/index.md", "docs/gallery.md")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, rows)))


@pytest.fixture
def invented(tmp_path, monkeypatch):
    """A folder of recorded data: a judge of summaries that overrates long ones, one that prefers what stands first."""
    rng, scored, compared = np.random.default_rng(3), [], []
    for index in range(240):
        quality, length = rng.normal(size=2)
        ratings = np.clip(np.round(3 + quality + 0.5 * rng.normal(size=3)), 1, 5).astype(int).tolist()
        score = float(np.clip(3 + 0.6 * quality + 0.6 * length + 0.4 * rng.normal(), 1, 5))
        item = {"id": f"d{index // 4}/s{index % 4}", "input_id": f"d{index // 4}", "system": f"s{index % 4}"}
        output = "word " * round(20 * 2**length)
        scored.append({**item, "output": output, "ratings": {"order": ratings}, "judges": {"long": {"order": score}}})
    for index in range(200):
        right, keen = int(rng.integers(2)), rng.random() < 0.7
        pair = {"id": f"p{index}", "source": f"question {index}", "outputs": [f"a{index}", f"b{index}"]}
        pair |= {"better": right}
        verdict = {"id": f"p{index}", "prompt": "my_prompt", "winner": 0 if keen else right}
        compared.append((pair, verdict | {"winner_swapped": 1 if keen else right}))
    folder, judges = tmp_path / "data", tmp_path / "data/judges"
    write(judges / "summeval_scores.jsonl.gz", scored)
    articles = [{"input_id": f"d{k}", "source": f"Article {k}."} for k in range(60)]
    write(judges / "summeval_documents.jsonl.gz", articles)
    nats = zip([row["id"] for row in scored], rng.normal(size=240).tolist(), strict=True)
    write(judges / "summeval_likelihoods.jsonl", [{"id": k, "smollm2-135m-instruct": value} for k, value in nats])
    write(judges / "judgebench.jsonl.gz", [pair for pair, _ in compared])
    verdicts = [v | {"judge": judge} for judge in ("first", "o1-mini-2024-09-12") for _, v in compared]
    write(judges / "judgebench_verdicts.jsonl.gz", verdicts)
    monkeypatch.setenv("EVALBIAS_DATA", str(folder))
    return tmp_path


def cells(text, judge):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {judge} |")]
    return line.strip("| ").split(" | ")


@pytest.mark.slow
def test_the_page_says_what_the_audits_found_and_remarks_stay(invented, capsys):
    for page in PAGES:
        marked = "models" if page == "docs/gallery.md" else "gallery"
        (invented / page).parent.mkdir(exist_ok=True)
        block = f"<!-- begin {marked} -->\nold\n<!-- end {marked} -->"
        (invented / page).write_text(f"# Page\n\nA remark.\n\n{block}\n\nEnd.\n")
    arguments = ["--sets", "summeval", "judgebench", "--out", str(invented / "out"), "--write"]
    gallery.main(arguments, root=invented)
    text = (invented / "docs/gallery.md").read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nA remark.")
    long = cells(text, "long")
    assert long[:3] == ["long", "order", "240"]
    headings = cells(text[text.index("begin summeval") :].partition("| long")[0], "judge")
    effects = dict(zip(headings, long, strict=True))
    assert re.fullmatch(r"\*\*\+0\.\d\d \(\+0\.\d\d to \+0\.\d\d\)\*\*", effects["verbosity"])
    assert not effects["likelihood"].startswith("**")
    assert "- long, order: " in text
    table = text[text.index("begin judgebench") :]
    first = dict(zip(cells(table[: table.index("| first")], "judge"), cells(table, "first"), strict=True))
    assert re.fullmatch(r"\*\*8\d % \(\d\d % to \d\d %\)\*\*", first["position"])
    for bias in ("likelihood", "verbosity", "position"):
        assert (invented / f"docs/gallery-{bias}.png").stat().st_size > 5_000
    # the first pages show a chosen row, and no more than was audited
    for page in PAGES[:2]:
        said = (invented / page).read_text(encoding="utf-8")
        assert said.startswith("# Page\n\nA remark.")
        assert said.endswith("<!-- end gallery -->\n\nEnd.\n")
        assert "| o1-mini on JudgeBench | the output shown first wins" in said
        assert "old" not in said
        assert "GPT-4" not in said
    # an audit is done once, and again when its data change
    assert capsys.readouterr().err.count(" s\n") == 3
    gallery.main(arguments, root=invented)
    assert (invented / "docs/gallery.md").read_text(encoding="utf-8").count("begin judgebench") == 1
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_likelihoods_of_a_second_model_stand_beside_the_first(invented, capsys):
    """The second model finds long texts likely, and the judge overrates long ones."""
    (invented / "out").mkdir()
    long = {one["id"]: float(np.log(len(one["output"]))) for one in gallery.sets.judged_summaries()}
    (invented / "out/likelihoods-other-9m.json").write_text(json.dumps(long))
    out = str(invented / "out")
    gallery.main(["--sets", "summeval", "--second", "other-9m.gguf", "--documents", "50", "--out", out])
    text = capsys.readouterr().out.partition("## models\n\n")[2].partition("\n\n##")[0]
    assert text.startswith("On 200 summaries: of 1 findings, 0 are the same with both models;")
    compared = dict(zip(cells(text.partition("| long")[0], "judge"), cells(text, "long"), strict=True))
    assert not compared["SmolLM2 135M"].startswith("**")
    assert re.fullmatch(r"\*\*\+0\.\d\d \(.*\)\*\*", compared["other-9m"])


SAID = [(0.123, "biased", "**+0.12 (-0.05 to +0.30)**"), (0.123, "no sign", "+0.12 (-0.05 to +0.30)")]
SAID += [(0.123, "too few items", "+0.12 (-0.05 to +0.30) ?"), (None, "not measured", "between -0.05 and +0.30 ?")]


@pytest.mark.parametrize(("value", "status", "shown"), SAID)
def test_a_cell_says_estimate_interval_and_finding(value, status, shown):
    estimate = {"value": value, "low": -0.05, "high": 0.3, "unit": "sd", "signed": True}
    assert gallery.cell({"name": "effect", "status": status, "estimates": {"effect": estimate}}) == shown


def test_the_first_pages_quote_the_gallery():
    readme, index, page = ((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
    block = re.search(r"<!-- begin gallery -->(.*?)<!-- end gallery -->", readme, re.DOTALL)[1]
    assert block in index
    rows = [line.strip("| ").split(" | ") for line in block.strip().splitlines()[2:]]
    assert len(rows) == len(gallery.FIRST)
    for _, said in rows:
        assert said in page
