"""Language models that write prepared texts, and texts drawn by a seed, for refine loops."""

import zlib

import dspy
from dspy import lm15


class Engine:
    def __init__(self, texts):
        self.texts, self.asked = list(texts), []

    def complete(self, request):
        self.asked.append("\n".join(m.text or "" for m in request.messages))
        text = self.texts[(len(self.asked) - 1) % len(self.texts)]
        if isinstance(text, Exception):
            raise text
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=7, output_tokens=3, total_tokens=10),
        )

    def __deepcopy__(self, memo):
        return self  # a copied program asks the same model

    def dump_state(self):
        return {}


class Scripted(dspy.LM):
    """Writes the texts in turn, again and again; ``asked`` holds the prompts."""

    def __init__(self, *texts):
        super().__init__("fake/scripted", engine=Engine(texts), cache=False)

    @property
    def asked(self):
        return self.engine.asked


class Drawing:
    """Writes by ``answer(request)`` and keeps every request."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def complete(self, request):
        self.asked.append(request)
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(self.answer(request)),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=7, output_tokens=3, total_tokens=10),
        )

    def __deepcopy__(self, memo):
        return self


class Seeded(dspy.LM):
    """A model that draws by the request's seed, as LocalLM does; at temperature 0 it always writes the same."""

    draws_by_seed = True

    def __init__(self, answer=lambda request: f"a dog {drawn(request)}", **kwargs):
        super().__init__("fake/seeded", engine=Drawing(answer), cache=False, **kwargs)

    @property
    def asked(self):
        return self.engine.asked


def drawn(request):
    """Return a text that depends on the whole request, its seed included, unless it is greedy."""
    return zlib.crc32(repr(request).encode()) if request.config.temperature else 0
