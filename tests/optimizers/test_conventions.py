"""What estimates, measurements and reports have in common."""

import dataclasses
import importlib
import inspect
import pkgutil

from evalbias import evaluation, optimizers

OPEN = {"Problem"}
"""States of a search, which it fills."""


def test_results_are_frozen():
    modules = [
        importlib.import_module(one.name)
        for package in (evaluation, optimizers)
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    kinds = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)
        if kind.__module__ == module.__name__
    }
    assert len(kinds) > 40
    assert {kind.__name__ for kind in kinds if not kind.__dataclass_params__.frozen} == OPEN
