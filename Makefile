# Two commands do everything: `make demo` and `make test`. Needs python >= 3.11 and make.

# The first of these that is new enough makes the environments; `make demo PYTHON=/my/python`.
PYTHON ?= python3 python3.13 python3.12 python3.11
# Further arguments, as in `make lab LABFLAGS=--allow-root` and `make test PYTESTFLAGS=-x`.
LABFLAGS ?=
PYTESTFLAGS ?=
BENCHFLAGS ?=

VENV   := .venv
OLDEST := .venv-oldest
BIN    := $(VENV)/bin

# Only what a recipe runs, so that a user's own Jupyter and Python settings cannot interfere.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help demo lab test check docs oldest bench clean \
        integration browser e2e screenshots cluster cluster-built cluster-down cluster-status

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

# The example's jobs stay with its environment, so that `make clean` takes them too.
demo lab: export CIAO_STORAGE := $(CURDIR)/$(VENV)/ciao
demo: $(VENV)/.demo  ## set up, then run the quickstart notebook through the real kernel
	@echo '==> running notebooks/quickstart.ipynb'
	@$(BIN)/python notebooks/run.py notebooks/quickstart.ipynb
	@echo
	@echo '==> done. The same notebook in JupyterLab: make lab'

lab: $(VENV)/.demo  ## open JupyterLab on the quickstart notebook
	@$(BIN)/jupyter lab $(LABFLAGS) notebooks/quickstart.ipynb

test: check $(OLDEST)/.test cluster-built  ## lint, types, import contract, then every test there is
	@echo '==> the other tests, two suites at a time, each shown when it is done (minutes)'
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target e2e integration browser oldest

integration: $(VENV)/.test  ## real kernels, processes and frameworks on this machine
	@echo '==> tests/integration'
	@$(BIN)/python -m pytest tests/integration $(PYTESTFLAGS)

browser: $(VENV)/.test  ## JupyterLab and Notebook in a real Chromium, on the installed wheel
	@echo '==> tests/browser'
	@$(BIN)/python -m pytest tests/browser $(PYTESTFLAGS)

e2e: $(VENV)/.test  ## tests on a real Kubernetes, raised if it is not up
	@echo '==> tests/e2e'
	@$(BIN)/python -m pytest tests/e2e $(PYTESTFLAGS)

check: $(VENV)/.test docs  ## the quick part of test: lint, types, import contract, docs, unit tests
	@echo '==> ruff format'
	@$(BIN)/ruff format --check .
	@echo '==> ruff check'
	@$(BIN)/ruff check .
	@echo '==> mypy --strict'
	@$(BIN)/mypy
	@echo '==> import contract'
	@$(BIN)/lint-imports
	@echo '==> tests/unit'
	@$(BIN)/python -m pytest tests/unit $(PYTESTFLAGS)

oldest: $(OLDEST)/.test  ## the kernel's tests on the oldest supported ipykernel and jupyter_client
	@echo '==> tests/integration/kernel on the pins of tests/oldest.txt'
	@$(OLDEST)/bin/python -m pytest tests/integration/kernel $(PYTESTFLAGS)

docs: $(VENV)/.test  ## build the documentation site: build/site/index.html
	@echo '==> documentation'
	@$(BIN)/python docs/make.py

screenshots: $(VENV)/.test  ## make the pictures of README.md and docs/ again
	@$(BIN)/python -m tests.browser.screenshots

bench: $(VENV)/.test  ## run benchmarks/
	@echo '==> benchmarks'
	@$(BIN)/python -m benchmarks $(BENCHFLAGS)

# What takes minutes the first time, in sight of who waits for it.
cluster-built: $(VENV)/.made
	@$(BIN)/python -m tests.cluster build

cluster: $(VENV)/.made  ## raise the tests' Kubernetes on this machine (root; docs/cluster.md)
	@$(BIN)/python -m tests.cluster up

cluster-down: $(VENV)/.made  ## lower it; the cache stays
	@$(BIN)/python -m tests.cluster down

cluster-status: $(VENV)/.made  ## tell how each part of it is and where its log lies
	@$(BIN)/python -m tests.cluster status

clean:  ## remove what these targets made: environments, caches, build outputs
	@echo '==> removing $(VENV), $(OLDEST), caches and build outputs'
	@rm -rf $(VENV) $(OLDEST) build dist *.egg-info
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is newer than what it was made from, so a second run starts at once.
# After an editable install Jupyter does not know the kernel yet, hence `ciao install`.
define install
	@echo "==> installing .[$(2)] into $(1) (downloads much the first time)"
	@$(1)/bin/python -m pip install --disable-pip-version-check $(3) --editable '.[$(2)]'
	@$(1)/bin/ciao install --sys-prefix
	@touch $@
endef

SPEC := setup.cfg $(wildcard kernelspec/*)

$(VENV)/.demo: $(VENV)/.made $(SPEC)
	$(call install,$(VENV),lab$(,)tensorflow$(,)examples)

$(VENV)/.test: $(VENV)/.made $(SPEC)
	$(call install,$(VENV),dev$(,)tensorflow$(,)pytorch$(,)examples$(,)lab$(,)sos)

$(OLDEST)/.test: $(OLDEST)/.made $(SPEC) tests/oldest.txt
	$(call install,$(OLDEST),test,--constraint tests/oldest.txt)

, := ,

# .made and not bin/python: where venv fails half-way (Debian without python3-venv) the
# interpreter exists already, and the next run would take it for a whole environment.
%/.made:
	@for python in $(PYTHON); do \
	    if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	        echo "==> making $* with $$python"; \
	        $$python -m venv --clear $* && touch $@; exit; \
	    fi; \
	done; \
	echo "the frameworks need Python 3.11 to 3.13, and none was found (tried: $(PYTHON)); name one: make PYTHON=..." >&2; \
	exit 1
