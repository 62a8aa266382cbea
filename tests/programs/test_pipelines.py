"""A judge inside a user's program: an instrument that DSPy's optimizers leave as it is, or one that they may tune."""

import re
import warnings
from functools import partial

import dspy
import numpy as np
import pytest
from dspy.clients.provider import Provider, ReinforceJob, TrainingJob
from dspy.teleprompt.grpo import GRPO
from fakes import Pipeline
from models_of_text import Scripted, Seeded

from evalbias import Criterion
from evalbias.lm.contract import Sampling
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.programs import PairwiseJudge, PairwiseRanker, PointwiseJudge

QUALITY = Criterion("quality", "is it good?")
TWICE = Sampling(samples=2)
EXAMPLES = [dspy.Example(question=f"the cat {i}", answer="the cat").with_inputs("question") for i in range(4)]
FIELDS = re.compile(r"\[\[ ## (\w+) ## \]\]")


def obliging(request):
    """Write the fields that a prompt asks for; a prompt that asks for none is a judge's."""
    asked = "\n".join(message.text for message in request.messages)
    fields = [name for name in FIELDS.findall(asked[asked.rfind("Respond with") :]) if name != "completed"]
    return "\n".join(f"[[ ## {name} ## ]]\nthe cat sat" for name in dict.fromkeys(fields)) or "4"


def decisive(judge):
    """All that decides a judge's answers, and one of them."""
    item = dspy.Example(source="the cat", output="the cat sat")
    return judge.messages(item), dict(judge.settings.values), judge(**item).score


def reward(example, prediction, trace=None, pred_name=None, pred_trace=None):
    return prediction.score / 5


REWORDS = Scripted('{"new_instruction": "Reworded."}')
ONE = {"metric": reward, "num_threads": 1}
FEW = {"metric": reward, "max_bootstrapped_demos": 1, "max_labeled_demos": 1}
OPTIMIZERS = {  # with the options of ``compile``
    "LabeledFewShot": (partial(dspy.LabeledFewShot, k=2), {}),
    "BootstrapFewShot": (partial(dspy.BootstrapFewShot, **FEW), {}),
    "random search": (partial(dspy.BootstrapFewShotWithRandomSearch, num_candidate_programs=1, **FEW | ONE), {}),
    "COPRO": (partial(dspy.COPRO, metric=reward, breadth=2, depth=1), {"eval_kwargs": {"num_threads": 1}}),
    "MIPROv2": (partial(dspy.MIPROv2, auto=None, num_candidates=2, **ONE), {"num_trials": 2, "minibatch": False}),
    "SIMBA": (partial(dspy.SIMBA, bsize=2, num_candidates=2, max_steps=1, max_demos=1, **ONE), {}),
    "GEPA": (partial(dspy.GEPA, max_metric_calls=8, reflection_lm=REWORDS, **ONE), {}),
    "InferRules": (partial(dspy.InferRules, num_candidates=1, num_rules=1, **ONE), {}),
}
SLOW = ("random search", "MIPROv2", "SIMBA")
CASES = [pytest.param(*one, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, one in OPTIMIZERS.items()]
every = pytest.mark.parametrize(("make", "options"), CASES)


@every
def test_an_optimizer_of_the_pipeline_leaves_the_judge_as_it_is(make, options, lms):
    judge = PointwiseJudge(QUALITY, correction=ScoreCorrection({"likelihood": Slope(-0.1, -20.0)}))
    judge.predict.demos = [dspy.Example(source="the cat", output="the cat", score="1")]
    judge.set_lm(lms["llama"])
    expected = decisive(judge)
    pipeline = Pipeline(judge)
    assert [name for name, _ in pipeline.named_predictors()] == ["rewrite"]
    with dspy.context(lm=Seeded(obliging, temperature=1.0)):
        optimized = make().compile(pipeline, trainset=EXAMPLES, **options)
        assert optimized(question="the cat 0").score == judge(source="the cat 0", output="the cat sat").score
    assert decisive(optimized.judge) == decisive(judge) == expected


@every
def test_an_optimizer_of_the_pipeline_tunes_a_judge_that_is_tunable(make, options):
    pipeline = Pipeline(PointwiseJudge(QUALITY, scoring="sampled", sampling=TWICE))
    pipeline.judge.tunable = True
    assert [name for name, _ in pipeline.named_predictors()] == ["rewrite", "judge.predict"]
    with dspy.context(lm=Seeded(obliging, temperature=1.0)), warnings.catch_warnings(record=True):
        optimizer = make()
        optimized = optimizer.compile(pipeline, trainset=EXAMPLES, **options)
        assert optimized(question="the cat 0").score == 4
    shows = isinstance(optimizer, dspy.LabeledFewShot | dspy.BootstrapFewShot)  # the examples it was given, or ran
    assert bool(optimized.judge.predict.demos) == shows


class Trainer(Provider):  # trains nothing, and keeps what a model would be trained on
    finetunable = reinforceable = True

    class ReinforceJob(ReinforceJob):
        def initialize(self):
            self.steps = 0

        def get_status(self):
            return {"pending_batch_ids": [self.steps]}

        def step(self, train_data, train_data_format=None):
            self.steps += 1
            self.lm.provider.trained += [one for group in train_data for one in group["group"]]

        def terminate(self):
            pass

        def save_checkpoint(self, *arguments, **options):
            pass

        def update_model(self):
            pass

    def __init__(self):
        self.trained, self.TrainingJob = [], TrainingJob

    def __deepcopy__(self, memo):
        return self

    def finetune(self, job, model, train_data, *arguments, **options):
        self.trained += train_data
        return "fake/tuned"

    @staticmethod
    def kill(lm, launch_kwargs=None):
        pass


STEP = {"num_train_steps": 1, "num_dspy_examples_per_grpo_step": 2, "num_rollouts_per_grpo_step": 2}
TRAINING = {"BootstrapFinetune": partial(dspy.BootstrapFinetune, **ONE)}
TRAINING |= {"GRPO": partial(GRPO, exclude_demos=True, **STEP, **ONE)}


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("tunable", [False, True])
def test_a_model_is_trained_on_the_judgments_of_a_judge_only_if_it_is_tunable(name, tunable):
    lm, own = Seeded(obliging, temperature=1.0), Scripted("3")
    judge = PointwiseJudge(QUALITY, scoring="sampled", sampling=TWICE)
    lm.provider, lm.train_kwargs = (trainer := Trainer()), {}
    judge.set_lm(own)
    judge.tunable = tunable
    pipeline = Pipeline(judge)
    pipeline.set_lm(lm)
    optimized = TRAINING[name]().compile(pipeline, trainset=EXAMPLES)
    judgments = ["Judge the output on quality" in str(one) for one in trainer.trained]
    assert judgments
    assert any(judgments) is tunable
    assert (judge.get_lm() is own) is not tunable
    assert optimized(question="the cat 0").score == (4 if tunable else 3)


@pytest.mark.parametrize("tunable", [False, True])
def test_the_nearest_examples_are_shown_to_the_writer(tunable):
    judge, own = PointwiseJudge(QUALITY, scoring="sampled", sampling=TWICE), Scripted("3")
    judge.predict.demos = [dspy.Example(source="the cat", output="the cat", score="1")]
    judge.set_lm(own)
    judge.tunable = tunable
    embed = dspy.Embedder(lambda texts: np.array([[float(text[-1]), 1.0] for text in texts], dtype=np.float32))
    with dspy.context(lm=(lm := Seeded(obliging, temperature=1.0))), warnings.catch_warnings(record=True):
        compiled = dspy.KNNFewShot(2, EXAMPLES, embed, **FEW).compile(Pipeline(judge))
        score = compiled(question="the cat 3").score
    writer = next(request for request in reversed(lm.asked) if FIELDS.search(request.messages[-1].text))
    shown = str(writer.messages)
    assert (shown.count("the cat 3"), shown.count("the cat 0")) == (2, 0)  # the nearest example, and the question
    assert score == (4 if tunable else 3)  # it compiles a copy for every question, of which a tunable judge is reset
    assert (len(judge.predict.demos), judge.get_lm()) == (1, own)


@pytest.mark.parametrize("judge", [PointwiseJudge(QUALITY), PairwiseRanker(PairwiseJudge(QUALITY))])
def test_dspy_sees_an_instrument_as_one_parameter(judge):
    pipeline = Pipeline(judge)
    assert [name for name, _ in pipeline.named_parameters()] == ["rewrite", "judge.instrument"]
    pipeline.set_lm(Scripted("1"))
    assert judge.get_lm() is None  # the model of the program is not the judge's
    judge.set_lm(lm := Scripted("2"))
    assert judge.get_lm() is lm
    assert pipeline.rewrite.lm is not lm
    assert len(judge.predictors()) == 1  # what optimizers of the judge itself compile
