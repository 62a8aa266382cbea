"""The ``dspy.Predict`` of our programs, whose saved state names its fields and may name a model of evalbias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from evalbias.lm.saved import check_lm, restored_lm, written_lm

NAMES = "field_names"
WRITTEN = ("traces", "train", "demos", "signature", "fields", "lm", NAMES)
"""Names in the state of a predictor."""


class Predictor(dspy.Predict):  # type: ignore[misc]
    """A ``dspy.Predict`` that loads its own states only.

    DSPy's own state of a predictor holds no names of fields, and DSPy refuses to load a model that is not of its own
    class unless told that the file is trusted (``allow_unsafe_lm_state``). Models of evalbias are loaded in either
    case; from a file that is not trusted, without a server's address and without the model's own code.
    """

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return instructions, demonstrations, field names and those settings of the model that shape its answers.

        Settings that may hold a secret are left out, and their names logged.
        """
        state: dict[str, Any] = {**super().dump_state(json_mode), NAMES: list(self.signature.fields)}
        if state["lm"] is not None:
            state["lm"] = written_lm(state["lm"])
        return state

    def load_state(self, state: Mapping[str, Any], *, allow_unsafe_lm_state: bool = False) -> Predictor:
        """Replace instructions, demonstrations and model; see ``dspy.Predict``.

        Raises:
            ValueError: The state is of a predictor with other fields, holds no instructions or demonstrations, or a
                name that ``dump_state`` does not write.
        """
        check_predictor(state, trusted=allow_unsafe_lm_state)
        names, own = list(self.signature.fields), dict(state)
        saved = own.pop(NAMES, None)
        if saved != names:
            raise ValueError(
                f"The state is another predictor's: its fields are {saved!r:.200}, not {names}. Load it into a "
                "program with the same signatures."
            )
        _check_prompt(own, names)
        lm = restored_lm(own["lm"], trusted=allow_unsafe_lm_state)
        if lm is not None:
            own["lm"] = None
        super().load_state(own, allow_unsafe_lm_state=allow_unsafe_lm_state)
        if lm is not None:
            self.lm = lm
        return self


def check_predictor(state: Mapping[str, Any], *, trusted: bool) -> None:
    """Refuse a predictor's state that holds more than ``dump_state`` writes: DSPy makes each name an attribute.

    An attribute ``config``, for one, is sent with every request, and may say where to.

    Raises:
        ValueError: The message names what is unknown or too large.
    """
    if unknown := [name for name in state if name not in WRITTEN]:
        raise ValueError(f"It holds {unknown[0]!r:.80}, which no saved program does: remove it from the file.")
    if lm := state.get("lm"):
        check_lm(lm, trusted=trusted)


def _check_prompt(state: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse instructions and demonstrations of another form, such as a hand-edited file has them.

    Raises:
        ValueError: The message names the part of the state, and what belongs there.
    """
    signature, demos = state.get("signature"), state.get("demos", [])
    instructions = signature.get("instructions") if isinstance(signature, Mapping) else None
    if not isinstance(instructions, str):
        raise ValueError(f"'instructions' in 'signature' is {instructions!r:.80}: give a text.")
    if not isinstance(demos, list):
        raise ValueError(f"'demos' is {demos!r:.80}: give a list of demonstrations, [] for none.")
    for number, demo in enumerate(demos, start=1):
        if not isinstance(demo, Mapping | dspy.Example):
            raise ValueError(f"Demonstration {number} in 'demos' is {demo!r:.80}: give an object with {names}.")
