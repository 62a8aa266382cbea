"""Results of measures cannot be changed after they were computed."""

import dataclasses
import importlib
import pkgutil

import pytest

import evalbias.measures

NAMES = [one.name for one in pkgutil.iter_modules(evalbias.measures.__path__)]
KINDS = {
    kind
    for name in NAMES
    for kind in vars(importlib.import_module(f"evalbias.measures.{name}")).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not kind.__name__.startswith("_")
}


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_results_are_frozen(kind):
    one = object.__new__(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, field.name, None)
