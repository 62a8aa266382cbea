"""The real client of TypeSafe's service, through DSPy, against a decision model behind the service's own path."""

import asyncio

import dspy
import pytest

pytest.importorskip("typesafe_sdk", reason="TypeSafe's client has an environment of its own: make test-integrations")

from decision_models import sparrow, sparrow_server
from dspy.experimental import TypeSafe

from evalbias import Criterion, PairwiseJudge, PointwiseJudge, ServerLM

COHERENCE = Criterion("coherence", "is it coherent?", (1, 3), levels=("hard to follow", "partly clear", "clear"))
ITEMS = [dspy.Example(source="A council met.", output=text) for text in ("the cat sat", "the council met", "on Monday")]


def test_a_judge_has_the_same_numbers_by_the_client_by_the_server_and_in_python():
    with sparrow_server() as (address, requests):
        server = ServerLM("sparrow", base_url=address, dialect="systemone", patience=5.0)
        client = TypeSafe("sparrow", api_key="none", base_url=address.removesuffix("/v1"), cache=False, timeout=60.0)
        judge = PointwiseJudge(COHERENCE)
        ours, theirs = ([p.score for p in judge.batch(ITEMS, lm=lm)] for lm in (server, client))
        (question,) = requests[-1]["questions"].values()
        judge.predict.lm = client
        called = [judge(**e).score for e in ITEMS]
        awaited = asyncio.run(judge.acall(**ITEMS[0])).score
        pair = dspy.Example(source="a", candidates=["the council met", "a cat"])
        compared = [PairwiseJudge(COHERENCE).batch([pair], lm=lm)[0].probability for lm in (server, client)]
    told = [sparrow().ask({"Source": e.source, "Output": e.output}, {"q": question})["q"] for e in ITEMS]
    shares = [[*one["probabilities"].values()] for one in told]
    expected = [sum((1 + i) * p for i, p in enumerate(row)) / sum(row) for row in shares]
    assert ours == pytest.approx(expected, abs=1e-6)
    assert theirs == pytest.approx(expected, abs=1e-6)
    assert called == pytest.approx(expected, abs=1e-6)
    assert awaited == pytest.approx(expected[0], abs=1e-6)
    assert compared[0] == pytest.approx(compared[1], abs=1e-6)
    assert client.history[-1]["response"]["model"] == sparrow().name
