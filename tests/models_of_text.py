"""Language models that write prepared texts, and texts drawn by a seed, for refine loops."""

import zlib

import dspy
from dspy import lm15

from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict


def response(request, text, usage=None):
    """Return a text as a provider's answer to a request."""
    usage = usage or lm15.Usage(input_tokens=7, output_tokens=3, total_tokens=10)
    message = lm15.Message.assistant(text)
    return lm15.Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)


class Engine:
    """Writes by ``write(request)`` and keeps every request."""

    def __init__(self, write):
        self.write, self.asked = write, []

    def complete(self, request):
        self.asked.append(request)
        text = self.write(request)
        if isinstance(text, Exception):
            raise text
        return response(request, text)

    def __deepcopy__(self, memo):
        return self  # a copied program asks the same model

    def dump_state(self):
        return {}


class Scripted(dspy.LM):
    """Writes the texts in turn, again and again; ``asked`` holds the prompts."""

    def __init__(self, *texts):
        engine = Engine(lambda _: texts[(len(engine.asked) - 1) % len(texts)])
        super().__init__("fake/scripted", engine=engine, cache=False)

    @property
    def asked(self):
        return ["\n".join(m.text or "" for m in request.messages) for request in self.engine.asked]


class Seeded(dspy.LM):
    """A model that draws by the request's seed, as LocalLM does; at temperature 0 it always writes the same."""

    draws_by_seed = True

    def __init__(self, answer=lambda request: f"a dog {drawn(request)}", **kwargs):
        super().__init__("fake/seeded", engine=Engine(answer), cache=False, **kwargs)

    @property
    def asked(self):
        return self.engine.asked


def drawn(request):
    """Return a text that depends on the whole request, its seed included, unless it is greedy."""
    return zlib.crc32(repr(request).encode()) if request.config.temperature else 0


def refusing(lm, word, error):
    """Make a model refuse prompts whose last message holds a word."""
    answer = lm.engine.complete

    def complete(request):
        response = answer(request)
        if word in request.messages[-1].text:
            raise error
        return response

    lm.engine.complete = complete
    return lm


class Longer:
    """Feedback that thinks that what is longer is better."""

    name, low, high = "length", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), f"length {len(output)}")


class Letters:
    """Feedback that counts the letter a."""

    name, low, high = "letters", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(output.count("a")), f"{output.count('a')} of them")


def refine_loop(*texts, iterations=3):
    """A loop under ``Longer``, whose model writes the texts in turn."""
    generate, refine = PlainPredict("source -> output"), PlainPredict("source, draft, feedback -> output")
    program = SelfRefine(generate, Longer(), refine, max_iterations=iterations)
    if texts:
        program.set_lm(Scripted(*texts))
    return program
