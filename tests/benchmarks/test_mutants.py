"""The tool that measures the tests: code is exchanged in place, and every measure has its tests."""

import json
import sys
import types
from pathlib import Path

from benchmarks.mutants import (
    EQUIVALENTS,
    FOLDERS,
    MODULES,
    Mutant,
    compiles,
    exchange,
    files_of,
    meaning,
    names_of,
    path_of,
    section,
    within_function,
)

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
    exchange(old, CODE.replace("x > limit", "x >= limit").replace("a + self.b", "a - self.b").replace("max(", "min("))
    assert (above(3), pair.total(), pair.larger, pair.product) == (True, -3, 2, 10)
    exchange(old, CODE.replace("self.a * self.b", "self.a / self.b").replace("limit=LIMIT", "limit=9"))
    assert (above(5), pair.total(), pair.larger, old.Pair(2, 5).product) == (False, 7, 5, 0.4)


def test_every_module_has_tests():
    assert {"measures.agreement", "measures.equal_quality", "evaluation.estimates", "optimizers.zepo"} <= {*MODULES}
    assert all(path_of(module).is_file() for module in MODULES)
    assert all(len(files_of(folders)) > 3 for folders in FOLDERS.values())


def test_what_means_the_same_is_about_code_that_exists():
    for one in json.loads(Path(EQUIVALENTS).read_text(encoding="utf-8")):
        removed = one["change"].removeprefix("-").split(" +")[0].strip().removeprefix("- ")  # two lines may go
        lines = [" ".join(line.split()) for line in path_of(one["module"]).read_text(encoding="utf-8").splitlines()]
        assert any(line.startswith(removed) or removed.startswith(line) for line in lines if line), one
        assert len(one["reason"]) > 10


OVERLOADED = """
@overload
def total(x: int) -> int: ...
def total(x):
    '''Add up.'''
    return sum(a for a, b in zip(x, x, strict=True))
"""


def test_what_no_test_of_numbers_could_notice_means_the_same():
    for old, new in (("@overload\n", ""), ("strict=True", "strict=False"), ("x: int", "x: str"), ("Add", "Take")):
        assert old in OVERLOADED
        assert meaning(OVERLOADED.replace(old, new)) == meaning(OVERLOADED)
    for old, new in (("sum", "max"), ("a for", "b for"), ("zip(x, x", "zip(x, x, x")):
        assert old in OVERLOADED
        assert meaning(OVERLOADED.replace(old, new)) != meaning(OVERLOADED)


def test_code_that_python_warns_about_is_the_linters_to_find():
    assert compiles("x = 1\ny = x == 1")
    assert not compiles("x = 1\ny = x is 1")
    assert not compiles("x = = 1")


def test_the_share_leaves_out_what_means_the_same():
    chosen = [Mutant("measures.ranks", 30, "f", "", f"-a{k}\n+b{k}") for k in range(6)]
    noticed = {("measures.ranks", f"-a{k} +b{k}"): k < 3 for k in range(5)}
    text = section(chosen, noticed, [{"module": "measures.ranks", "change": "-a4 +b4", "reason": "same"}], 7)
    assert "5 of 6 drawn mutants were tried, of 1 modules (seed 7)" in text
    assert "3 noticed, 1 mean the same as the code, 1 survive: 75 %" in text
    assert "Not tried: `measures.ranks` 1." in text
    assert "- `measures.ranks` line 30: `-a3 +b3`" in text


def test_a_fault_outside_functions_needs_a_new_import():
    lines = path_of("measures.agreement").read_text(encoding="utf-8").splitlines()
    body = next(k for k, line in enumerate(lines, 1) if "order = np.argsort" in line)
    header = next(k for k, line in enumerate(lines, 1) if line.startswith("def counted_ranks"))
    assert within_function(Mutant("measures.agreement", body, "f", "", ""))
    assert not within_function(Mutant("measures.agreement", header, "f", "", ""))


def test_a_place_keeps_its_name_while_other_lines_change():
    code = "def a(x):\n    return x + 1\n\ndef b(x):\n    return x + 1\n"
    names = names_of([(2, 13), (5, 11), (5, 13)], code)
    assert len(set(names)) == 3
    moved = "LIMIT = 2\n" + code.replace("    return", "        return")
    assert names_of([(3, 17), (6, 15), (6, 17)], moved) == names
