"""The tool that measures the tests: code is exchanged in place, and every measure has its tests."""

import json
import sys
import types
from pathlib import Path

import pytest

from benchmarks import mutants

CODE = """
import dataclasses, functools

LIMIT = 3

def above(x, limit=LIMIT):
    return x > limit

@dataclasses.dataclass(frozen=True)
class Pair:
    a: int
    b: int

    def total(self):
        return self.a + self.b

    @property
    def larger(self):
        return max(self.a, self.b)

    @functools.cached_property
    def product(self):
        return self.a * self.b
"""


def test_functions_and_methods_change_where_they_were_imported(monkeypatch):
    old = types.ModuleType("measured")
    old.__file__ = "measured.py"
    monkeypatch.setitem(sys.modules, "measured", old)
    exec(CODE, vars(old))
    above, pair = old.above, old.Pair(2, 5)
    changed = CODE.replace("x > limit", "x >= limit").replace("a + self.b", "a - self.b").replace("max(", "min(")
    mutants.exchange(old, changed)
    assert (above(3), pair.total(), pair.larger, pair.product) == (True, -3, 2, 10)
    mutants.exchange(old, CODE.replace("self.a * self.b", "self.a / self.b").replace("limit=LIMIT", "limit=9"))
    assert (above(5), pair.total(), pair.larger, old.Pair(2, 5).product) == (False, 7, 5, 0.4)


def test_every_module_has_tests():
    assert {"measures.agreement", "evaluation.estimates", "optimizers.zepo"} <= {*mutants.MODULES}
    assert all(mutants.path_of(module).is_file() for module in mutants.MODULES)
    assert all(len(mutants.files_of(folders)) > 3 for folders in mutants.FOLDERS.values())


def test_what_means_the_same_is_about_code_that_exists():
    for one in json.loads(Path(mutants.EQUIVALENTS).read_text(encoding="utf-8")):
        removed = one["change"].removeprefix("-").split(" +")[0].strip().removeprefix("- ")  # two lines may go
        code = mutants.path_of(one["module"]).read_text(encoding="utf-8")
        lines = [" ".join(line.split()) for line in code.splitlines()]
        assert any(line.startswith(removed) or removed.startswith(line) for line in lines if line), one
        assert len(one["reason"]) > 10


OVERLOADED = """
@overload
def total(x: int) -> int: ...
def total(x):
    '''Add up.'''
    return sum(a for a, b in zip(x, x, strict=True))
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        *(("@overload\n", "", True), ("strict=True", "strict=False", True)),
        *(("x: int", "x: str", True), ("Add", "Take", True)),
        *(("sum", "max", False), ("a for", "b for", False), ("zip(x, x", "zip(x, x, x", False)),
    ],
)
def test_what_no_test_of_numbers_could_notice_means_the_same(old, new, same):
    assert old in OVERLOADED
    assert (mutants.meaning(OVERLOADED.replace(old, new)) == mutants.meaning(OVERLOADED)) is same


def test_code_that_python_warns_about_is_the_linters_to_find():
    assert [mutants.compiles(f"x = 1\ny = x {sign} 1") for sign in ("==", "is", "= =")] == [True, False, False]


def test_the_share_leaves_out_what_means_the_same(snapshot):
    chosen = [mutants.Mutant("measures.ranks", 30, "f", "", f"-a{k}\n+b{k}") for k in range(6)]
    noticed = {("measures.ranks", f"-a{k} +b{k}"): k < 3 for k in range(5)}
    same = [{"module": "measures.ranks", "change": "-a4 +b4", "reason": "same"}]
    assert mutants.section(chosen, noticed, same, 7) == snapshot


def test_a_fault_outside_functions_needs_a_new_import():
    lines = mutants.path_of("measures.agreement").read_text(encoding="utf-8").splitlines()
    body = next(k for k, line in enumerate(lines, 1) if "order = np.argsort" in line)
    header = next(k for k, line in enumerate(lines, 1) if line.startswith("def counted_ranks"))
    assert mutants.within_function(mutants.Mutant("measures.agreement", body, "f", "", ""))
    assert not mutants.within_function(mutants.Mutant("measures.agreement", header, "f", "", ""))


def test_a_place_keeps_its_name_while_other_lines_change():
    code = "def a(x):\n    return x + 1\n\ndef b(x):\n    return x + 1\n"
    names = mutants.names_of([(2, 13), (5, 11), (5, 13)], code)
    assert len(set(names)) == 3
    moved = "LIMIT = 2\n" + code.replace("    return", "        return")
    assert mutants.names_of([(3, 17), (6, 15), (6, 17)], moved) == names
