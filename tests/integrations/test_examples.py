"""The examples of the pages about other packages; see tests/examples.py."""

import pytest
from examples import PAGES, examples_of, run_page, same

INTEGRATIONS = {"needs inspect_ai", "needs mlflow"}


def marks(page):
    return INTEGRATIONS & {example.mark for example in examples_of(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", [page for page in PAGES if marks(page)], ids=lambda page: page.stem)
def test_the_examples_with_other_packages_run(page, tmp_path):
    for mark in marks(page):
        pytest.importorskip(
            mark.removeprefix("needs "), reason="it has an environment of its own: make test-integrations"
        )
    ran = run_page(page, tmp_path, INTEGRATIONS)
    assert ran
    for example, printed in ran:
        assert example.output is None or same(example.output, printed), printed
