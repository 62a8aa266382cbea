"""A language model that writes prepared texts, for refine loops."""

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
