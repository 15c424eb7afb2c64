# Two commands do everything: `make demo` and `make test`. Needs python >= 3.11 and make.

# The first of these that is new enough makes the environments; `make demo PYTHON=/my/python`.
PYTHON ?= python3 python3.13 python3.12 python3.11
# Further arguments, as in `make lab LABFLAGS=--allow-root` and `make test PYTESTFLAGS=-x`.
LABFLAGS ?=
PYTESTFLAGS ?=
BENCHFLAGS ?=

# Tiers of tests: first, a slice of the second, rest, all (tests/README.md).
TIERS ?= first
# `make test ALSO=gateway` runs a slice of the second tier too.
ALSO ?=
# How many tests at a time: most of them wait, so more than there are cores (tests/README.md).
WORKERS ?= 4

VENV   := .venv
OLDEST := .venv-oldest
BIN    := $(VENV)/bin

# One part of the tests: which environment, what its junit file is called, what runs.
RESULTS  := build/tests
KERNEL   := tests/integration/kernel
OTHERS   := tests/integration tests/browser tests/e2e
ALONE    := alone or breaks_cluster
# The order is groups.py's: long ones first.
PARALLEL  = -n $(WORKERS) --dist loadgroup --no-loadscope-reorder -m 'not ($(ALONE))'
RUN      := python
pytest    = $(1)/bin/$(RUN) -m pytest $(3) --tiers='$(TIERS)' \
                --junitxml=$(RESULTS)/$(2).xml $(PYTESTFLAGS)
# With the cluster up. A variable, so that `make -n` shows such a line instead of running it.
during    = $(BIN)/python -m tests.cluster during $(MAKE) --no-print-directory --keep-going

# Only what a recipe runs, so that a user's own Jupyter and Python settings cannot interfere.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help demo lab test test-all check docs oldest bench clean coverage \
        integration browser e2e screenshots cluster cluster-built cluster-down cluster-status \
        ready tests side-by-side together alone oldest-beside oldest-alone e2e-side e2e-alone

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

test: ready check  ## lint, types, import contract, and the tests of the first tier
	@$(MAKE) --no-print-directory tests TIERS='first $(ALSO)'

# SLICES='gateway docs' runs those alone.
test-all: ready check  ## the same with every test there is, or the slices that SLICES names
	@$(MAKE) --no-print-directory tests TIERS='$(or $(SLICES),all)'

# First what may run side by side, then what has to be alone; a failure does not hide the rest.
tests:
	@echo '==> tests of the tiers: $(TIERS)'
	@$(during) side-by-side oldest-alone alone; code=$$?; $(BIN)/python -m tests.suites.minutes; exit $$code

side-by-side:
	@$(MAKE) --no-print-directory --jobs=2 --keep-going together oldest-beside

together:
	@echo '==> tests/integration, tests/browser and tests/e2e, $(WORKERS) at a time'
	@$(call pytest,$(VENV),together,$(OTHERS) $(PARALLEL))

alone:
	@echo '==> tests that measure, and those that break the cluster'
	@$(call pytest,$(VENV),alone,$(OTHERS) -m '$(ALONE)')

oldest-alone:
	@echo '==> tests that measure, on the pins of tests/oldest.txt'
	@$(call pytest,$(OLDEST),oldest-alone,$(KERNEL) -m '$(ALONE)')

# Shown when it is done, so that two runs do not mix their lines.
oldest-beside:
	@mkdir -p $(RESULTS)
	@$(call pytest,$(OLDEST),oldest,$(KERNEL) -m 'not ($(ALONE))') >$(RESULTS)/oldest.log 2>&1; \
	    code=$$?; echo '==> $(KERNEL) on the pins of tests/oldest.txt'; \
	    cat $(RESULTS)/oldest.log; exit $$code

integration: $(VENV)/.test  ## real kernels, processes and frameworks on this machine
	@echo '==> tests/integration'
	@$(call pytest,$(VENV),integration,tests/integration $(PARALLEL))
	@$(call pytest,$(VENV),integration-alone,tests/integration -m '$(ALONE)')

browser: $(VENV)/.test  ## JupyterLab and Notebook in a real Chromium, on the installed wheel
	@echo '==> tests/browser'
	@$(call pytest,$(VENV),browser,tests/browser)

e2e: $(VENV)/.test  ## tests on a real Kubernetes, raised if it is not up
	@echo '==> tests/e2e'
	@$(during) e2e-side e2e-alone

e2e-side:
	@$(call pytest,$(VENV),e2e,tests/e2e $(PARALLEL))

e2e-alone:
	@$(call pytest,$(VENV),e2e-alone,tests/e2e -m '$(ALONE)')

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
	@$(call pytest,$(VENV),unit,tests/unit -n 2)

oldest: $(OLDEST)/.test  ## the kernel's tests on the oldest supported ipykernel and jupyter_client
	@echo '==> tests/integration/kernel on the pins of tests/oldest.txt'
	@$(call pytest,$(OLDEST),oldest,$(KERNEL))

docs: $(VENV)/.test  ## build the documentation site: build/site/index.html
	@echo '==> documentation'
	@$(BIN)/python docs/make.py

# Kernels and replicas of this machine are measured too, what runs in pods is not.
coverage: $(VENV)/.test  ## which lines and branches the tests of TIERS reach
	@rm -rf build/coverage && mkdir -p build/coverage $(RESULTS)
	@$(call pytest,$(VENV),unit,tests/unit) --quiet
	@$(during) together alone RUN='$(RUN)'
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report
coverage: RUN := coverage run

screenshots: $(VENV)/.test  ## make the pictures of README.md and docs/ again
	@$(BIN)/python -m tests.browser.screenshots

bench: $(VENV)/.test  ## run benchmarks/
	@echo '==> benchmarks'
	@$(BIN)/python -m benchmarks $(BENCHFLAGS)

# What takes minutes the first time, side by side: downloads wait for the network, builds do not.
ready:
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory --jobs=3 $(VENV)/.test $(OLDEST)/.test cluster-built

cluster-built: $(VENV)/.made
	@$(BIN)/python -m tests.cluster build all

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
