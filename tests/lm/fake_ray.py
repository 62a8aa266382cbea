"""Ray with actors in this process."""

from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(cause)
        self.cause = cause


@dataclass(eq=False)
class Call:
    """A call of an actor, carried out when its result is fetched."""

    actor: Any
    given: tuple[Any, ...]


class FakeRay:
    """Two machines; the n-th actor is ``kinds[n]`` of a class and its arguments, the last kind for all further ones.

    An actor that is asked nothing is done first, and then the part that was sent last.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *kinds, gpus=1):
        self.kinds, self.gpus = deque(kinds or [lambda make, *given: make(*given)]), gpus
        self.started, self.needs, self.calls, self.sizes = 0, None, [], []

    def nodes(self):
        dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        return [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": float(self.gpus)}} for _ in range(2)] + [dead]

    def remote(self, make):
        def start(*given):
            self.started += 1
            kind = self.kinds.popleft() if len(self.kinds) > 1 else self.kinds[0]
            actor = kind(make, *given)
            return SimpleNamespace(answer=SimpleNamespace(remote=lambda *given: self._called(actor, *given)))

        def options(**needs):
            self.needs = needs
            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=options)

    def _called(self, actor, part):
        self.calls.append(call := Call(actor, (part,)))
        self.sizes += [len(part)] if part else []
        return call

    def wait(self, references, num_returns):
        ready = [call for call in self.calls if call in references]
        return [next((call for call in ready if not call.given[0]), ready[-1])], []

    def get(self, call):
        self.calls.remove(call)
        return call.actor.answer(*call.given)
