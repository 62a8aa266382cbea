"""No secret that a model holds reaches a file, a log or an error: saving, loops, searches and failures."""

import json
import logging
import traceback
from functools import partial

import dspy
import pytest
from fake_server import serving
from fakes import Comparer, pair
from loopback import Handler, listening

from evalbias.evaluation import run_loops
from evalbias.optimizers import ZEPO
from evalbias.optimizers.proposers import LMParaphraser
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.feedback import ConceptsFeedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict
from evalbias.values import describe

MARK = "canary-7f3a"
ARGUMENTS = (
    *("api_key", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_bedrock_runtime_endpoint"),
    *("aws_web_identity_token", "azure_ad_token", "azure_password", "azure_username", "client_secret", "credentials"),
    *("hf_token", "vertex_credentials", "watsonx_apikey", "zen_api_key", "token", "password", "passphrase", "cookie"),
    *("organization", "project", "user", "tenant_id", "client_id", "bearer", "private_key", "authorization", "session"),
)
"""Arguments of dspy.LM and litellm, and some that no list knows, in which a key or an account may stand."""

NESTED = {"Authorization": MARK, "api_key": MARK}
PLACES = ("headers", "extra_headers", "default_headers", "extra_query", "extra_body", "metadata", "litellm_params")


def check_clean(folder, caplog):
    files = {file: file.read_text() for file in folder.rglob("*") if file.is_file()}
    assert files
    for name, text in {**files, "log": caplog.text}.items():
        assert MARK not in text, f"{name}: {text[max(0, text.index(MARK) - 200) :][:300]}"


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, logger="evalbias")
    return caplog


def test_saved_judges_hold_no_secret(tmp_path, log):
    secrets = {**dict.fromkeys(ARGUMENTS, MARK), **{name: dict(NESTED) for name in PLACES}}
    secrets |= dict.fromkeys(("api_base", "base_url"), f"https://user:{MARK}@localhost:1/v1?key={MARK}")
    secrets["extra_body"]["top_k"] = 5
    for number, judge in enumerate([PointwiseJudge(Criterion("q", "is it good?")), PairwiseJudge(Criterion("q", "?"))]):
        judge.set_lm(dspy.LM("openai/canary", temperature=0.5, **secrets))
        judge.save(str(tmp_path / f"{number}.json"))
        assert MARK not in json.dumps(describe(judge))
    kept = {"temperature": 0.5, "max_tokens": None, "extra_body": {"top_k": 5}}  # what shapes answers
    kept |= dict.fromkeys(("api_base", "base_url"), "https://localhost:1/v1")
    trusting = PointwiseJudge(Criterion("q", "is it good?"))
    trusting.load(str(tmp_path / "0.json"), allow_unsafe_lm_state=True)
    assert trusting.predict.lm.kwargs == kept
    assert judge.predict.lm.kwargs["headers"] == NESTED
    assert "'aws_secret_access_key'" in log.text
    assert '"https://localhost:1/v1"' in (tmp_path / "1.json").read_text()
    check_clean(tmp_path, log)


@pytest.mark.slow
def test_logs_of_loops_and_searches_hold_no_secret_also_where_the_model_fails(tmp_path, log, lms):
    items = [dspy.Example(id=str(i), concepts=["dog", "run"]) for i in range(2)]
    fields = ("concepts -> text", "concepts, draft, feedback -> text")
    write, rewrite = (PlainPredict(one, max_tokens=3) for one in fields)
    loop = SelfRefine(write, ConceptsFeedback(), rewrite, field="text", max_iterations=1)
    with serving(lms["llama-chat"], "chat", key=MARK) as (address, server):
        server.unknown = set()
        lm = dspy.LM("openai/tiny", api_base=address, cache=False, num_retries=0, api_key=MARK)
        loop.set_lm(lm)
        assert not run_loops(loop, items, log_dir=tmp_path / "loops").failed
        search = ZEPO(LMParaphraser(lm, max_tokens=4), population=2, epochs=1, select=False, log_dir=tmp_path / "log")
        search.compile(PairwiseJudge(Criterion("q", "is it good?")), trainset=[pair(1, 2)], lm=Comparer())
        assert len(lm.history) > 4
        server.faults = lambda *_: 400
        more = [*items, dspy.Example(id="3", concepts=["cat"])]
        assert len(run_loops(loop, more, log_dir=tmp_path / "loops").failed) == 1
    loop.save(str(tmp_path / "loop.json"))
    check_clean(tmp_path, log)


class Repeating(Handler):
    """Refuses every request, and repeats the key that came with it."""

    def reply(self, _):
        key = self.headers["Authorization"].removeprefix("Bearer ")
        self.send(401, json.dumps({"error": {"message": f"Incorrect API key provided: {key}."}}).encode())


@pytest.mark.parametrize("given", [{"api_key": MARK}, {}])
def test_a_key_that_a_provider_repeats_is_in_no_error_of_a_model_of_dspy(given, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "another-canary" if given else MARK)
    criterion, item = Criterion("q", "is it good?"), dspy.Example(id="1", source="s", output="t", concepts=["dog"])
    with listening(Repeating) as address:
        lm = dspy.LM("openai/tiny", api_base=address, cache=False, num_retries=0, **given)
        write = PlainPredict("concepts -> text")
        write.set_lm(lm)
        asks = [partial(PointwiseJudge(criterion, scoring=way).batch, [item], lm=lm) for way in ("expected", "sampled")]
        for ask in (*asks, partial(write, concepts=["dog"])):
            with pytest.raises((ConnectionError, dspy.LMError), match=r"provided: \[key\]") as raised:
                ask()
            assert MARK not in "".join(traceback.format_exception(raised.value))
        loop = SelfRefine(dspy.Predict("concepts -> text"), ConceptsFeedback(), write, field="text", max_iterations=1)
        loop.set_lm(lm)
        (failed,) = run_loops(loop, [item]).failed.values()
    assert "provided: [key]" in failed
    assert MARK not in failed
