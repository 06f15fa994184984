# Pythons to look for, in this order; name your own with: make PYTHON=/path/to/python learn
PYTHON ?= python3.12 python3.11 python3
VENV := .venv
# Where functions say the shapes of their arrays: the suite checks these when they are called.
SHAPED := jaxpar.collectives,jaxpar.parallel,jaxpar.long_run,jaxpar.nn,jaxpar.flash,jaxpar.kernels,jaxpar.model
BIN := $(VENV)/bin
# tests/proofs.json, the record of what has been proved, grows during a run.
SUITE = $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal --timeout 300 \
    --jaxtyping-packages=$(SHAPED),beartype.beartype --record
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help learn test test-all lint format benchmark site wheelhouse clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s%s\n", $$1, $$2 }' Makefile

learn: | $(BIN)/pip  ## install, run lesson 01 the first time, and open the exercise at hand
	@$(BIN)/python learn.py

test: $(VENV)/.dev  ## install the development tools; test, and prove in full what has changed
	@$(SUITE)

test-all: $(VENV)/.dev  ## test everything, whatever has been proved before
	@$(SUITE) --all

lint: $(VENV)/.dev  ## style, types, imports, and stubs that follow the library
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/basedpyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/jaxpar dev build --check

format: $(VENV)/.dev  ## write the format of code, the stubs, and the generated pages
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet
	@$(BIN)/jaxpar dev build
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/predictions.py

benchmark: $(VENV)/.dev  ## measure, and write the figures into docs/benchmarks.md
	@$(BIN)/python -m benchmarks

site: $(VENV)/.dev web/node_modules  ## the lessons, explorers and exercises for a browser, in build/site
	@$(BIN)/python -m web.build
	@echo "To read it: $(BIN)/python -m http.server --directory build/site"

wheelhouse: | $(BIN)/pip  ## wheels of jaxpar and of all it needs, for a lab without network
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir wheelhouse .
	@echo "On machines like this one, with the same Python, and without network: copy wheelhouse/ there, then"
	@echo "  python3 -m venv .venv && .venv/bin/python -m pip install --no-index --find-links wheelhouse jaxpar"

clean:  ## remove what make installed and what the tools cached; your answers stay
	@rm -rf $(VENV) web/node_modules pictures build dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	@find jaxpar lessons exercises tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# This file is a stamp: an install runs again only when pyproject.toml has changed.
$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing jaxpar and its development tools into $(VENV): once, a few minutes."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.learn

# Python for the browser, which the site serves itself.
web/node_modules: web/package-lock.json
	@npm ci --prefix web --no-audit --no-fund --loglevel error
	@touch $@

# pip comes last when an environment is made, so a half-made one is made again.
$(BIN)/pip:
	@for python in $(PYTHON); do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    new=$$python; \
	    $$python -c 'import ensurepip' 2>/dev/null && exec $$python -m venv --clear $(VENV); \
	done; \
	if [ -n "$$new" ]; then \
	    echo "make: $$new has no venv module; run: sudo apt install $$(basename $$new)-venv"; \
	else \
	    echo "make: no Python 3.11 or newer found ($(PYTHON)); run: sudo apt install python3 python3-venv"; \
	fi >&2; exit 1
