# Every target does its own set-up: a virtual environment in .venv, made once and brought up to date
# when pyproject.toml or constraints.txt change. Nothing is installed outside this folder.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
PYTHON ?=
WORKERS ?= 2

# Test workers share the cores: one thread each.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MPLBACKEND := agg

.PHONY: help demo test quick lint bench format clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
	  || sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1: \2/p' Makefile

demo: $(STAMP) ## answer the question of the README on packaged data
	@$(BIN)/python examples/demo.py

test: lint ## everything that must hold before a change lands
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup

quick: $(STAMP) ## the tests without the slow ones
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup -m "not slow"

lint: $(STAMP) ## style, types, layers and the content of the wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	rm -rf build
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
	  --wheel-dir build/wheel .
	$(BIN)/check-wheel-contents build/wheel

bench: $(STAMP) ## time the paths that must be fast
	@$(BIN)/python -m compileall -q specmodel calibration drafter
	$(BIN)/pytest -q tests/benchmarks --benchmark-only

format: $(STAMP) ## put the code in the form that lint expects
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

clean: ## remove the environment, build products and caches
	rm -rf $(VENV) build dist *.egg-info .benchmarks .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
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
	@echo "installing specmodel and its tools into $(VENV)"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --upgrade pip
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --group test --group lint --editable ".[drafter]"
	@# pip compiles what it installs, but not what it links to
	@$(BIN)/python -m compileall -q specmodel calibration drafter
	@touch $@
