# Two commands do everything: `make demo` and `make test`. Needs python >= 3.11 and make.

# The first suitable one of these makes the environments; another: `make demo PYTHON=/my/python`.
PYTHON ?= python3 python3.13 python3.12 python3.11
# Further arguments, for example `make lab LABFLAGS=--allow-root` and `make test PYTESTFLAGS=-x`.
LABFLAGS ?=
PYTESTFLAGS ?=
BENCHFLAGS ?=

# Tiers of tests: first, a slice of the second, rest, all (tests/README.md).
TIERS ?= first
# `make test ALSO='gateway docs'` runs slices of the second tier too.
ALSO ?=
# Number of parallel tests; more than cores, because most tests wait (tests/README.md).
WORKERS ?= 4
# Number of processes for tests/unit, each with a part of the files: many of these tests wait.
PARTS ?= 6

VENV   := .venv
OLDEST := .venv-oldest
BIN    := $(VENV)/bin

# One part of the tests. Arguments of `pytest`: environment, name of the junit file, what to run.
RESULTS  := build/tests
KERNEL   := tests/integration/kernel
OTHERS   := tests/integration tests/browser tests/e2e
# The tests that depend most on the versions of other packages.
OLD      := $(KERNEL) tests/integration/kube tests/unit/kube
ALONE    := alone or breaks_cluster
# suites/groups.py sets the order: long groups first.
side_by_side = -n $(1) --dist loadgroup --no-loadscope-reorder -m 'not ($(ALONE))'
PARALLEL  = $(call side_by_side,$(WORKERS))
# Beside the other tests one process is enough for the first tier of these: the others take longer.
# All of them run beside the tests that break the cluster, which leave a core idle. Alone the slice
# has all workers.
LONG           = $(filter rest all,$(TIERS))
OLDEST_WORKERS = $(if $(LONG),2,$(if $(filter oldest,$(TIERS)),$(if $(filter-out oldest,$(TIERS)),2,$(WORKERS)),0))
# Files that have the word: to collect all others too takes ten seconds, with nothing beside.
lone      = $$(grep -rlwE --include='test_*.py' '$(subst $() or $(),|,$(2))' $(1)) -m '$(2)'
RUN      := python
pytest    = $(1)/bin/$(RUN) -m pytest $(3) --tiers='$(TIERS)' \
                --junitxml=$(RESULTS)/$(2).xml $(PYTESTFLAGS)
# Both stand here because `make -n` runs a recipe that has $(MAKE) in its own text. The first one runs
# targets side by side, each of which shows its output when it ends; the other while the cluster is up.
quickly   = $(MAKE) --no-print-directory --jobs=$(shell expr $(PARTS) + 1) --keep-going --output-sync=target
during    = $(BIN)/python -m tests.cluster during $(MAKE) --no-print-directory --keep-going

# The user's own Python settings must not affect the recipes. Without stored bytecode, which images
# often switch off, each kernel of a test compiles the whole package: a third of all CPU time.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo lab test test-all check docs oldest bench clean coverage \
        integration browser e2e screenshots cluster cluster-built cluster-down cluster-status \
        ready static unit tests side-by-side together breaking break-cluster alone oldest-beside e2e-side e2e-alone

help:  ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1	/p' Makefile

# Jobs of the example are stored in its environment, so that `make clean` removes them too.
demo lab: export CIAO_STORAGE := $(CURDIR)/$(VENV)/ciao
demo: $(VENV)/.demo  ## set up, then run the quickstart notebook through the real kernel
	@echo '==> running notebooks/quickstart.ipynb'
	@$(BIN)/python notebooks/run.py notebooks/quickstart.ipynb
	@echo
	@echo '==> done. The same notebook in JupyterLab: make lab'

lab: $(VENV)/.demo  ## open JupyterLab on the quickstart notebook
	@$(BIN)/jupyter lab $(LABFLAGS) notebooks/quickstart.ipynb

# Some slices need programs whose build takes minutes.
test: export BUILD = $(ALSO)
test-all: export BUILD = $(or $(SLICES),all)
# `check` runs the first tier of tests/unit, and there the same slices as the rest of the run.
UNIT := first
test: UNIT = first $(ALSO)
test-all: UNIT = first $(or $(SLICES),rest)
test: ready check  ## run lint, types, import contract and the tests of the first tier
	@$(MAKE) --no-print-directory tests TIERS='first $(ALSO)'

# `make test-all SLICES='gateway docs'` runs only these slices.
test-all: ready check  ## run the same with all tests, or with the slices in SLICES
	@$(MAKE) --no-print-directory tests TIERS='$(or $(SLICES),all)'

# Parallel tests run first, then those marked alone. After a failure the others still run.
tests:
	@echo '==> tests of the tiers: $(TIERS)'
	@$(during) side-by-side $(if $(LONG),breaking )alone; code=$$?; $(BIN)/python -m tests.suites.minutes; exit $$code

side-by-side:
	@$(MAKE) --no-print-directory --jobs=2 --keep-going together $(if $(LONG),,oldest-beside)

breaking:
	@$(MAKE) --no-print-directory --jobs=2 --keep-going break-cluster oldest-beside

break-cluster:
	@echo '==> tests that break the cluster'
	@$(call pytest,$(VENV),breaking,$(call lone,tests/e2e,breaks_cluster))

together:
	@echo '==> tests/integration, tests/browser and tests/e2e, $(WORKERS) at a time'
	@$(call pytest,$(VENV),together,$(OTHERS) $(PARALLEL))

alone:
	@echo '==> tests that measure$(if $(LONG),,$(), and those that break the cluster)'
	@$(call pytest,$(VENV),alone,$(call lone,$(OTHERS),$(if $(LONG),alone,$(ALONE))))

# The output is shown at the end: it would mix with the output of the parallel run.
oldest-beside:
	@mkdir -p $(RESULTS)
	@$(call pytest,$(OLDEST),oldest,$(OLD) --oldest $(call side_by_side,$(OLDEST_WORKERS))) >$(RESULTS)/oldest.log 2>&1; \
	    code=$$?; echo '==> $(OLD) on the pins of tests/oldest.txt'; \
	    cat $(RESULTS)/oldest.log; exit $$code

integration: $(VENV)/.test  ## run tests with real kernels, processes and frameworks on this machine
	@echo '==> tests/integration'
	@$(call pytest,$(VENV),integration,tests/integration $(PARALLEL))
	@$(call pytest,$(VENV),integration-alone,$(call lone,tests/integration,$(ALONE)))

browser: $(VENV)/.test  ## run tests of JupyterLab and Notebook in a real Chromium, with the installed wheel
	@echo '==> tests/browser'
	@$(call pytest,$(VENV),browser,tests/browser)

e2e: $(VENV)/.test  ## run tests on a real Kubernetes cluster, which is started if necessary
	@echo '==> tests/e2e'
	@$(during) e2e-side e2e-alone

e2e-side:
	@$(call pytest,$(VENV),e2e,tests/e2e $(PARALLEL))

e2e-alone:
	@$(call pytest,$(VENV),e2e-alone,$(call lone,tests/e2e,$(ALONE)))

check: $(VENV)/.test  ## run the quick part of test: lint, types, import contract, docs, unit tests
	@echo '==> lint, types, import contract and docs, beside tests/unit'
	@rm -rf $(RESULTS)/unit
	@$(quickly) static unit TIERS='$(UNIT)'; code=$$?; \
	    $(BIN)/python -m tests.suites.minutes --folder $(RESULTS)/unit; exit $$code

static: docs
	@echo '==> ruff format'
	@$(BIN)/ruff format --check .
	@echo '==> ruff check'
	@$(BIN)/ruff check .
	@echo '==> mypy --strict'
	@$(BIN)/mypy
	@echo '==> import contract'
	@$(BIN)/lint-imports

unit: $(addprefix unit-,$(shell seq $(PARTS)))

unit-%:
	@echo '==> tests/unit, part $* of $(PARTS)'
	@$(call pytest,$(VENV),unit/$*,tests/unit --part=$*/$(PARTS) -o cache_dir=.pytest_cache/unit-$*)

oldest: $(OLDEST)/.test  ## run tests of the kernel and of Kubernetes with the oldest supported packages
	@echo '==> $(OLD) on the pins of tests/oldest.txt'
	@$(call pytest,$(OLDEST),oldest,$(OLD) --oldest)
oldest: TIERS := all

docs: $(VENV)/.test  ## build the documentation site: build/site/index.html
	@echo '==> documentation'
	@$(BIN)/python docs/make.py

# Includes kernels and replicas on this machine, but no code in pods.
coverage: $(VENV)/.test  ## measure the lines and branches that the tests of TIERS reach
	@rm -rf build/coverage $(RESULTS)/unit && mkdir -p build/coverage $(RESULTS)
	@$(call pytest,$(VENV),unit/all,tests/unit) --quiet
	@$(during) together alone RUN='$(RUN)'
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report
coverage: RUN := coverage run

screenshots: $(VENV)/.test  ## recreate the pictures of README.md and docs/
	@$(BIN)/python -m tests.browser.screenshots

bench: $(VENV)/.test  ## run benchmarks/
	@echo '==> benchmarks'
	@$(BIN)/python -m benchmarks $(BENCHFLAGS)

# Runs in parallel, because the first run takes minutes: downloads wait while builds compute.
ready:
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory --jobs=3 $(VENV)/.test $(OLDEST)/.test cluster-built

cluster-built: $(VENV)/.made
	@$(BIN)/python -m tests.cluster build all --slices $(BUILD)

cluster: $(VENV)/.made  ## start the Kubernetes cluster of the tests on this machine (root; docs/cluster.md)
	@$(BIN)/python -m tests.cluster up

cluster-down: $(VENV)/.made  ## stop that cluster; the cache stays
	@$(BIN)/python -m tests.cluster down

cluster-status: $(VENV)/.made  ## show the state and the log file of each part of that cluster
	@$(BIN)/python -m tests.cluster status

clean:  ## remove environments, caches and build outputs
	@echo '==> removing $(VENV), $(OLDEST), caches and build outputs'
	@rm -rf $(VENV) $(OLDEST) build dist *.egg-info
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than its inputs, so a second run starts at once.
# An editable install does not register the kernel with Jupyter: `ciao install` does.
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
	$(call install,$(VENV),dev$(,)tensorflow$(,)pytorch$(,)jax$(,)xgboost$(,)mpi$(,)examples$(,)lab$(,)sos)

$(OLDEST)/.test: $(OLDEST)/.made $(SPEC) tests/oldest.txt
	$(call install,$(OLDEST),test,--constraint tests/oldest.txt)

, := ,

# Python 3.11 brings a pip that takes five minutes more of processor time for our packages.
# The stamp is not bin/python: if venv fails half-way (Debian without python3-venv), the interpreter
# exists already, and the next run would treat the environment as complete.
%/.made:
	@for python in $(PYTHON); do \
	    if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	        echo "==> making $* with $$python"; \
	        $$python -m venv --clear $* && \
	            $*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip && \
	            touch $@; exit; \
	    fi; \
	done; \
	echo "the frameworks need Python 3.11 to 3.13, and none was found (tried: $(PYTHON)); name one: make PYTHON=..." >&2; \
	exit 1
