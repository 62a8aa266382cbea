"""The report as a file: what it holds, that hostile texts stay texts, and what a notebook shows."""

import base64
import hashlib
import html.parser
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import dspy
import numpy as np
import pytest
from fakes import Comparer, pair
from planted import compared, with_effect

import evalbias
from evalbias.evaluation import BIASES, Row, compare_judges, judge_examples, measure
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.bias import Plot
from evalbias.evaluation.judged import LIKELIHOODS
from evalbias.evaluation.loops import measure_rounds
from evalbias.evaluation.words import Table
from evalbias.optimizers.selection import CompileReport, Cost, Tried
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.report.page import Explainer, Page, Quote, Section, sections, terms, title_of_run, worst_of, write_report
from evalbias.report.plots import draw
from evalbias.runs import RunFolder

HOSTILE = "</p></svg></style><script>document.title='ran'</script><img src=x onerror=alert(1)>\x00\x07"


class Reader(html.parser.HTMLParser):  # the elements of a page and its text
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.ids, self.targets, self.loads = [], [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name.endswith("href") and value.startswith("#"):
                self.targets.append(value[1:])
            elif name in ("src", "href", "srcset", "data", "action"):
                self.loads.append(value)
            assert not name.startswith("on")

    def handle_data(self, data):
        self.text.append(data)


def check_scripts(page):
    """Check that a page runs nothing but the script for its items, which its policy allows by the script's hash."""
    scripts = re.findall(r"<script\b[^>]*>(.*?)</script", page, re.DOTALL | re.IGNORECASE)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    ours = Path(evalbias.__file__).with_name("report").joinpath("templates/items.js").read_text(encoding="utf-8")
    allowed = base64.b64encode(hashlib.sha256(ours.encode()).digest()).decode()
    assert scripts == [ours] * ("<li data-numbers=" in page)
    assert policy.split("; ") == [
        *("default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"),
        *[f"script-src 'sha256-{allowed}'"] * len(scripts),
    ]


def text_of(page):
    """The words of a page."""
    return " ".join("".join(Reader(page).text).replace("\xa0", " ").split())


def scored(n=120, effect=0.3):
    return with_effect(effect, n=n)


def pairs(n=60, seed=0):
    return compared(np.random.default_rng(seed), n)


@pytest.fixture(scope="module")
def measured():
    judged = {"likelihood": scored(), "position": pairs(), "verbosity": pairs()}
    return {name: measure(BIASES[name], one, seed=0, n_resamples=50) for name, one in judged.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, measured):
    settings = {"command": "measure " + HOSTILE, "data": HOSTILE, "criteria": [{"name": HOSTILE}], "seed": 0}
    with RunFolder(tmp_path_factory.mktemp("runs") / "run", settings) as run:
        likelihood = measured["likelihood"]
        examples = [dspy.Example(source=HOSTILE, output=HOSTILE * 40) for _ in likelihood.ids]
        shown = replace(likelihood, judged=replace(likelihood.judged, examples=examples))
        write_report(run.path, {**measured, "likelihood": shown}, verdict=HOSTILE)
    return run.path


def test_hostile_texts_stay_texts_and_a_page_asks_for_nothing(folder, measured):
    page = (folder / "report.html").read_text(encoding="utf-8")
    read, text = Reader(page), text_of(page)
    assert "img" not in read.tags
    check_scripts(page)
    assert "document.title='ran'" in text
    assert not {"\x00", "\x07"} & set(page)
    assert read.loads == ["data:,"]
    assert set(read.targets) <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))
    assert len(page.encode()) < 1_500_000
    assert read.tags.count("svg") == 1 * len(measured)  # every plot in two widths
    for title in ("Likelihood", "Position", "Verbosity", "The 50 items to look at first", "What was run", "Glossary"):
        assert title in text
    assert "50 % = no bias" in text
    assert "0 = no bias" in text
    for shown, times in ((900, 10), (450, 40)):
        assert text.count(f"{len(HOSTILE) * 40 - shown:,} more characters") == times


def test_colours_are_the_themes():
    (section,) = sections(measure(BIASES["position"], pairs(), seed=0, n_resamples=20))
    (plot,) = (block for block in section.blocks if isinstance(block, Plot))
    drawn = draw(plot)
    colors = set(re.findall(r"#[0-9a-f]{6}", drawn))
    assert colors <= {"#000000", "#ffffff"} - set(re.findall(r"(?:fill|stroke): (#\w+)", drawn))
    assert "var(--accent)" in drawn


@pytest.mark.slow
def test_plots_of_one_page_share_no_names_and_a_page_is_the_same_each_time(measured):
    first, second = (Page("t", "c", [*sections(measured)]).html() for _ in range(2))
    assert first == second
    svgs = re.findall(r"<svg.*?</svg>", first, re.DOTALL)
    assert len(svgs) == sum(isinstance(block, Plot) for one in sections(measured) for block in one.blocks)
    names = [name for svg in svgs for name in re.findall(r' id="([^"]+)"', svg)]
    assert len(names) == len(set(names))


def test_a_notebook_shows_plot_and_numbers_and_leads_nowhere(measured):
    read = Reader(measured["position"]._repr_html_())
    assert read.tags.count("svg") == 1
    assert "table" in read.tags
    assert read.loads == []
    assert set(read.targets) <= set(read.ids)
    judged = scored()
    milder = replace(judged, answers=judged.answers - 0.2 * judged.covariates[LIKELIHOODS])
    after = measure(BIASES["likelihood"], milder, seed=0, n_resamples=50)
    shown = compare_judges(measured["likelihood"], after, n_resamples=50, n_intervals=50, seed=0)._repr_html_()
    assert Reader(shown).tags.count("svg") == 2  # effect and BiasScore against 0, performance apart


def test_terms_are_explained_once_a_text_only_in_our_words_and_stand_in_the_glossary():
    explained, others = Explainer(linked=True), "performances of a self-consistent unreliability"
    found = re.findall(r">([^<>]+)<span", explained("BiasScore, BiasScore and performance"))
    assert found == ["BiasScore", "performance"]
    assert explained(f"<b> {others}") == f"&lt;b&gt; {others}"
    page = Page("t", "c", [Section("s", ["BiasScore", Quote("Dskew"), {"ZEPO": "LS"}])]).html()
    assert re.findall(r'<dt id="term-([^"]+)"', page) == ["biasscore"]
    glossary = Path(__file__).parents[2].joinpath("docs/glossary.md").read_text(encoding="utf-8").lower()
    known = [{f"**{term.name.lower()}**", f"({term.name.lower()})"} for term in terms().values()]
    assert [forms for forms in known if not any(form in glossary for form in forms)] == []


def test_every_round_of_a_loop_is_drawn_and_undefined_ones_are_left_out(snapshot):
    own, expected = np.array([[1.0, 2, 4], [2.0, 3, 5], [np.nan] * 3]), np.ones((3, 3))
    rounds = (measure_rounds(*scores, n_resamples=20, seed=0) for scores in ((own, expected), (expected, own)))
    above, below = ([*sections(one)] for one in rounds)
    plots = [[block for block in section.blocks if isinstance(block, Plot)] for section in above]
    assert [len(drawn) for drawn in plots] == [1, 1, 0]
    assert [section.finding for section in (*above, below[0])] == snapshot


def test_a_result_without_measurements_leaves_settings_and_glossary(tmp_path):
    with RunFolder(tmp_path / "run", {"command": "judge", "seed": 3}) as run:
        write_report(run.path, {"n": 3, "refused": ["a"]})
    text = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "What was run" in text
    assert title_of_run({"command": "refine measure"}) == "Self-bias of recorded loops"
    assert json.loads((tmp_path / "run/run.json").read_text())["versions"]["numpy"] in text


def test_an_audit_leads_with_its_verdict_and_says_it_once(tmp_path):
    same = {"source": HOSTILE, "outputs": [HOSTILE, "no, because"], "winner": 0, "winner_swapped": 1}
    rows = [{"id": f"p{k}", **same, "better": k % 2} for k in range(60)]
    found = evalbias.audit(rows, winner_field="winner", swapped_field="winner_swapped")
    with RunFolder(tmp_path / "run", {"command": "audit", "seed": 0}) as run:
        write_report(run.path, found, verdict=found.first_screen)
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    text = text_of(page)
    check_scripts(page)
    assert all(line.split(":")[0] in text for line in found.first_screen)
    (position,) = (finding for finding in found.findings if finding.bias == "position")
    assert position.status == "biased"
    assert "Position · biased" in text
    assert text.count("wins 100 of 100 comparisons instead of 50") == 1
    assert f"What helps against position: {position.remedy}." in text
    answer = text[: text.index("Does the order in which")]
    assert "Biased: the bias is significant" in answer
    assert "Too few items:" not in answer  # no bias has this status
    assert "people prefer output 1, the judge gives it 50 %" in text
    for bias in found.not_measured:
        assert BIASES[bias].title.capitalize() in text
    assert all(line.split(":")[0] in found._repr_html_() for line in found.first_screen)


def test_an_audit_shows_what_the_terminal_shows_of_groups():
    found = audit_answers(scored(80))
    whole = found.measurements["agreement"]
    found = replace(found, groups={"news": whole, "mail": whole})
    text = text_of(Page("t", "audit", [*sections(found)]).html())
    assert "Agreement with people by group" in text
    value = next(e for e in whole.estimates.values() if e.name in whole.headlines)
    assert text.count(f"{value.text()} ({value.interval})") == 2


def test_the_worst_items_of_one_of_several_criteria_name_it(measured):
    other = replace(measured["likelihood"], criterion="tact")
    assert worst_of([measured["likelihood"], other]).title == "The 50 items to look at first: quality"
    assert worst_of(measured["likelihood"]).title == "The 50 items to look at first"


def test_judges_side_by_side_mark_what_is_true_by_construction():
    rows = {}
    for name, debias in (("plain", None), ("both orders", "permutation")):
        judge = PairwiseJudge(Criterion("wit", "is it witty?"), debias=debias)
        examples = [pair(k, k + 1, source=f"s{k}") for k in range(6)]
        judged = judge_examples(judge, examples, lm=Comparer(lean=2))
        rows[name] = Row({"position": measure(BIASES["position"], judged, seed=0, n_resamples=20)}, {})
    (section,) = sections({"rows": rows})
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == ["plain", "both orders †"]
    assert table.caption.startswith("† True by construction")


def test_the_same_judge_before_and_after_has_a_table_and_no_plot(measured):
    (section,) = sections(compare_judges(*[measured["position"]] * 2, n_resamples=9, n_intervals=9, seed=0))
    assert [type(block) for block in section.blocks] == [Table]


def test_every_candidate_has_the_reason_why_it_was_chosen_or_not():
    def tried(name, chosen, reason):
        return Tried(name, {}, math.nan, Cost(), chosen, reason)

    candidates = (tried("given", True, "is kept: nothing is better"), tried("k = 8", False, "the performance falls"))
    table = CompileReport(chosen="", candidates=candidates).candidates_table()
    assert table.headings[-1] == "result"
    assert [row[-1] for row in table.rows] == ["is kept: nothing is better", "the performance falls"]
