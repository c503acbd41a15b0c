# Every target does its own set-up: a virtual environment in .venv, made once and brought up to date
# when pyproject.toml or constraints.txt change. Nothing is installed outside this folder.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# Two steps of one environment: what users install, then what the checks need on top of it.
BASE := $(VENV)/.base-up-to-date
FULL := $(VENV)/.up-to-date
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTHON ?=
WORKERS ?= 2

# Test workers share the cores: one thread each.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MPLBACKEND := agg
# Rewriting the tests for pytest takes as long as loading torch: kept beside them, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

PYTEST := $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Collected only by a process that interprets kernels.
INTERPRETED := $(wildcard tests/drafter/interpreted tests/drafter/*/interpreted)

.PHONY: help demo test prove quick lint interpreted bench format clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
	  || sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1: \2/p' Makefile

demo: $(BASE) ## answer the question of the README on packaged data
	@$(BIN)/python examples/demo.py

test: $(FULL) ## everything that must hold before a change lands
	@$(BIN)/python -m compileall -q specmodel calibration drafter
	@$(MAKE) --no-print-directory -j 2 --output-sync lint interpreted
	$(PYTEST)

prove: export SPECMODEL_PROVE := 1
prove: test ## the same with every case: all GPU targets, full coverage studies, long fuzz

quick: $(FULL) ## the tests without the slow ones
	$(PYTEST) -m "not slow"

lint: $(FULL) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

interpreted: $(FULL) ## the kernels in Triton's interpreter
	TRITON_INTERPRET=1 $(PYTEST) $(INTERPRETED)

bench: $(FULL) ## time the paths that must be fast
	@$(BIN)/python -m compileall -q specmodel calibration drafter
	$(BIN)/pytest -q tests/benchmarks --benchmark-only

format: $(FULL) ## put the code in the form that lint expects
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

clean: ## remove the environment, build products and caches
	rm -rf $(VENV) build dist *.egg-info .benchmarks .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE): pyproject.toml constraints.txt
	@python=; \
	for candidate in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14; do \
	  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	      2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "specmodel needs Python 3.11 or newer with its venv module, found" \
	    "$$(python3 --version 2>/dev/null || echo none); install it, or name one:" \
	    "make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "making $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing specmodel into $(VENV)"
	@$(PIP) install --quiet --no-compile --constraint constraints.txt --editable .
	@touch $@

$(FULL): $(BASE)
	@echo "installing the tools of the checks into $(VENV)"
	@$(PIP) install --quiet --constraint constraints.txt --upgrade pip
	@$(PIP) install --quiet --constraint constraints.txt --group test --group lint --editable ".[drafter]"
	@# hundreds of processes of the tests load what the base was installed without: compiled sources
	@$(BIN)/python -m compileall -qq -j 2 $(VENV)/lib specmodel calibration drafter || true
	@touch $@
