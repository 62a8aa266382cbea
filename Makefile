# `make demo` and `make test` need Python 3.10+ and make; the rest they fetch into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TYPED := build/typed

.PHONY: demo test check clean

demo: $(STAMP)
	$(BIN)/evalbias demo

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TYPED)
	$(BIN)/python -m pip install --quiet --no-deps --target $(TYPED) .  # types are checked as users get them
	test -s $(TYPED)/evalbias/embedded/model.safetensors -a -s $(TYPED)/evalbias/embedded/tokenizer.json
	$(BIN)/mypy $(TYPED)/evalbias

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "evalbias needs Python 3.10 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch  # first: what is there is kept
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
