# Everything works from a fresh clone with nothing but Python and make.
# Each target builds the part of .venv that it needs, and only when pyproject.toml or constraints.txt changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# tests and benchmarks share two cores between processes: one thread each is faster than a fight
TEST_JOBS ?= 2

.PHONY: help setup demo test check bench docs clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.dev  ## .venv with lossmith, its command and what developing it takes

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "lossmith needs Python 3.10 or newer; this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.user: $(VENV)/.python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[lab]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.user

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) --editable '.[bench]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(INSTALL) --editable '.[docs]'
	@touch $@

demo: $(VENV)/.user  ## the main job end to end on data that comes with scikit-learn
	$(BIN)/lossmith demo

test: $(VENV)/.dev  ## all tests, doctests included, warnings as errors
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_JOBS)

check: $(VENV)/.dev  ## formatting, lint, types, tests: what must be green before a commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

bench: $(VENV)/.bench  ## speed against the peers, in one run
	failed=0; for script in benchmarks/*.py; do $(BIN)/python $$script || failed=1; done; exit $$failed

docs: $(VENV)/.docs  ## the documentation site, into site/, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove what these targets made
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
