"""The parts of a gain, on versions whose parts are known."""

import numpy as np
import pytest

from evalbias.measures.corrections import split_gain
from evalbias.measures.equal_quality import EqualQuality


def version(rng, n, quality=0.0, length=0.0, *, worth=0.3, lean=0.0, raters=2):
    """Return scores, ratings and lengths of n outputs whose mean quality and length are given."""
    q, x = rng.normal(size=(2, n))
    x = length + 0.4 * q + x
    q = q + quality
    return 3 + 0.8 * q + worth * x + lean + 0.4 * rng.normal(size=n), q[:, None] + 0.6 * rng.normal(size=(n, raters)), x


def both(n=2000, *, seed=0, rated="versions", **second):
    rng = np.random.default_rng(seed)
    (s0, h0, x0), (s1, h1, x1) = version(rng, n), version(rng, n, **second)
    inputs = [f"{k}" for k in range(n)]
    features = {"length": np.concatenate([x0, x1]), "version": np.repeat([0.0, 1.0], n)}
    ratings, scores = np.concatenate([h0, h1]), np.concatenate([s0, s1])
    model = EqualQuality(scores, ratings, features, clusters=inputs * 2, unscaled=[*features])
    sides = [
        {"gain": s, "length": x} | ({"people": h.mean(axis=1)} if rated == "versions" else {})
        for s, h, x in ((s0, h0, x0), (s1, h1, x1))
    ]
    return split_gain(*sides, model, clusters=(inputs, inputs, inputs * 2))


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        ({"quality": 0.5}, {"length": 0.0, "quality": 0.4, "rest": 0.0}),
        ({"length": 0.5}, {"length": 0.15, "quality": 0.0, "rest": 0.0}),
        ({"quality": 0.5, "length": 0.5}, {"length": 0.15, "quality": 0.4, "rest": 0.0}),
        ({"quality": 0.5, "length": 0.5, "lean": 0.3}, {"length": 0.15, "quality": 0.4, "rest": 0.3}),
    ],
)
def test_planted_parts_are_found_and_add_up(second, parts):
    found = both(**second)
    for name, value in parts.items():
        assert found[name].value == pytest.approx(value, abs=0.06), name
        assert found[name].low < value < found[name].high, name
        assert found[name].high - found[name].low < 0.2, name
    assert sum(found[name].value for name in parts) == pytest.approx(found["gain"].value)
    assert found["people"].value == pytest.approx(second.get("quality", 0.0), abs=0.06)
    assert (found["gain"].n, found["gain"].units, found["gain"].undefined) == (4000, 2000, 0)


def test_without_ratings_of_both_versions_quality_is_in_the_rest():
    found = both(rated="elsewhere", quality=0.5, length=0.5)
    assert [*found] == ["gain", "length", "rest"]
    assert found["rest"].value == pytest.approx(0.4, abs=0.06)


def test_the_error_of_a_mean_difference_is_that_of_paired_inputs():
    rng = np.random.default_rng(1)
    base = rng.normal(size=40)
    first, second = base + 0.1 * rng.normal(size=40), base + 0.2 + 0.1 * rng.normal(size=40)
    inputs = [f"{k}" for k in range(40)]
    found = split_gain({"gain": first}, {"gain": second}, None, clusters=(inputs, inputs, []))["gain"]
    apart = second - first
    half = 2.0227 * apart.std(ddof=1) / np.sqrt(40)
    assert found.value == pytest.approx(apart.mean())
    assert (found.low, found.high) == (
        pytest.approx(apart.mean() - half, abs=1e-3),
        pytest.approx(apart.mean() + half, abs=1e-3),
    )
    assert split_gain({"gain": first}, {"gain": second[::-1]}, None, clusters=(inputs, inputs[::-1], []))[
        "gain"
    ].high == pytest.approx(found.high)


def test_what_cannot_be_said_is_undefined_and_says_why():
    inputs = [f"{k}" for k in range(20)]
    x = np.arange(20.0)
    sides = {"gain": x, "length": x**2}, {"gain": x + 1, "length": x**2 + x}
    found = split_gain(*sides, None, clusters=(inputs, inputs, []))
    assert found["gain"].value == pytest.approx(1)
    for name in ("length", "rest"):
        assert np.isnan([found[name].value, found[name].low]).all()
        assert found[name].reason.startswith("nobody rated items")
    rng = np.random.default_rng(0)
    noise = EqualQuality(
        rng.normal(size=20), rng.normal(size=(20, 2)), {"length": x}, clusters=inputs, unscaled=["length"]
    )
    assert split_gain(*sides, noise, clusters=(inputs, inputs, inputs))["length"].reason


def test_inputs_that_one_version_lacks_or_has_without_a_number_are_left_out():
    inputs = [f"{k}" for k in range(12)]
    first = {"gain": np.arange(12.0), "length": np.ones(12)}
    second = {"gain": np.arange(12.0) + 1, "length": np.ones(12)}
    second["gain"][3], first["length"][5] = np.nan, np.nan
    second["gain"][0] = 99
    found = split_gain(first, second, None, clusters=(inputs, ["else", *inputs[1:]], []))["gain"]
    assert found.value == pytest.approx(1)
    assert (found.n, found.units, found.undefined) == (18, 9, 6)
    few = split_gain({"gain": [1.0, 2.0]}, {"gain": [2.0, 3.0]}, None, clusters=(["a", "b"], ["a", "b"], []))["gain"]
    assert (few.value, np.isnan(few.low)) == (1, True)


def test_ratings_are_compared_on_the_inputs_that_have_them_in_both_versions():
    inputs, ratings = [f"{k}" for k in range(12)], np.arange(12.0)
    second = np.where(ratings > 5, ratings + 0.5, np.nan)  # the better half was rated
    sides = {"gain": ratings, "people": ratings}, {"gain": ratings, "people": second}
    found = split_gain(*sides, None, clusters=(inputs, inputs, []))
    assert found["people"].value == pytest.approx(0.5)
    assert found["people"].high == pytest.approx(0.5)
