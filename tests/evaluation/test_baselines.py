"""A searched judge beside its baselines."""

import pytest
from fakes import PARTS, Wording, rated

from evalbias import data
from evalbias.evaluation import BIASES, compare_with_baselines
from evalbias.optimizers import GrammarParaphraser
from evalbias.optimizers.zepo import ZEPO, Epochs
from evalbias.programs import Criterion, PairwiseJudge

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def searched():
    train, test = data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    judge = PairwiseJudge(C)
    zepo = ZEPO(GrammarParaphraser(PARTS), stopping=Epochs(3), select=False)
    compiled = zepo.compile(judge, trainset=data.pairs(train, limit=100, seed=0), lm=Wording(first=6.5))
    return judge, compiled, test


def test_four_rows_with_the_permutation_beside_the_search(searched):
    judge, compiled, test = searched
    rows = compare_with_baselines(judge, compiled, test, lm=Wording(first=6.5), limit=80, n_resamples=9999)
    assert list(rows) == ["initial", "initial + permutation", "searched", "searched + permutation"]
    initial, best = rows["initial"], rows["searched"]
    assert list(initial.measurements) == ["position", "verbosity", "agreement"]
    assert best.measurements["position"]["fairness"].value > initial.measurements["position"]["fairness"].value
    assert best.measurements["agreement"]["spearman"].value > initial.measurements["agreement"]["spearman"].value
    permuted = rows["initial + permutation"].measurements["agreement"]
    assert permuted.cost["judgments"] == 2 * permuted.notes["comparisons"]
    assert initial.comparisons == {}
    change = best.comparisons["agreement"]["spearman"]
    gain = best.measurements["agreement"]["spearman"].value - initial.measurements["agreement"]["spearman"].value
    assert change.difference.value == pytest.approx(gain)
    assert change.difference.low <= gain <= change.difference.high
    assert change.difference.n == 12
    assert judge.debias is compiled.debias is None


def test_items_that_nobody_rated_have_no_agreement_and_some_are_counted(searched):
    judge, compiled, test = searched
    bare = [e.copy(scores={}) for e in test]
    row = compare_with_baselines(judge, compiled, bare, lm=Wording(), limit=20, n_resamples=99)["searched"]
    assert "agreement" not in row.measurements
    some = [e if e.input_id != test[0].input_id else e.copy(scores={}) for e in test]
    agreed = compare_with_baselines(judge, compiled, some, lm=Wording(), limit=20, n_resamples=99)["searched"]
    assert agreed.measurements["agreement"]["spearman"].undefined == 1


def test_every_bias_that_applies_is_in_every_row(searched, monkeypatch):
    judge, compiled, test = searched

    class Copy(type(BIASES["verbosity"])):
        name = "another"

    monkeypatch.setitem(BIASES, "another", Copy())
    rows = compare_with_baselines(judge, compiled, test, lm=Wording(), limit=20, n_resamples=99)
    assert all("another" in row.measurements for row in rows.values())
    assert "another" in rows["searched"].comparisons
