# Two commands are enough: `make run` starts Holdfast, `make test` proves it.
# The quickest at hand, asked for only when the environment is made.
PYTHON ?= $(shell tools/choose_python.sh)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# What Python compiled is kept. Some machines forbid it, and every process then compiles 700 files anew.
unexport PYTHONDONTWRITEBYTECODE

# The pages. Node comes with the virtual environment; npm's packages are those of the lock.
MODULES := web/node_modules/.package-lock.json
PAGES := src/holdfast/gateway/built/index.html
WEB_SOURCES := $(shell find web -name node_modules -prune -o -type f -print)
NPM := cd web && PATH="$(CURDIR)/$(BIN):$$PATH" npm

# The plugin for OpenClaw; building it needs nothing but Node, checking its types does.
PLUGIN := cd integrations/openclaw && PATH="$(CURDIR)/$(BIN):$$PATH" npm
PLUGIN_MODULES := integrations/openclaw/node_modules/.package-lock.json

.PHONY: run test page-tests test-quick slow-tests settings-proofs settings-find torture lint types format pages shots wire bench crash docs schema lock clean oidc-provider

run: $(STAMP)
	@$(MAKE) --no-print-directory pages || echo 'The pages could not be built; Holdfast starts without. Later: make pages'
	$(BIN)/holdfast up

# Two more than the cores of the machine that this is measured on: many tests wait for processes of their own.
WORKERS ?= 4
# Each file by one worker, which begins what its tests share; the longest first, as tests/conftest.py sorts them.
BY_FILE := --dist loadfile --no-loadscope-reorder

test: $(STAMP)
	$(MAKE) --no-print-directory -j 3 lint types pages page-tests
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE)

page-tests: $(MODULES) $(PLUGIN_MODULES)
	$(NPM) test --silent
	$(PLUGIN) test --silent

# For every day: SQLite alone, without the tests that tests/slow_tests.txt names.
test-quick: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE) --quick

# Measures all tests and names anew those that are too slow for test-quick.
slow-tests: $(STAMP)
	PYTHONPATH=. $(BIN)/pytest -q -n $(WORKERS) $(BY_FILE) -p tools.cpu_account --cpu-account=build/cpu
	$(BIN)/python tools/cpu_account.py build/cpu
	$(BIN)/python tools/slow_tests.py build/cpu > tests/slow_tests.txt

# Takes each setting away in turn and sees the test fail that shows what it does; `find` looks for tests of new ones.
settings-proofs: $(STAMP)
	PYTHONPATH=. $(BIN)/pytest -q -p tools.settings_effects --settings-prove

settings-find: $(STAMP)
	PYTHONPATH=. $(BIN)/pytest -q -p tools.settings_effects --settings-find --quick

# For the night: kills, faults, property tests with more examples, hours of work in one home. See tools/torture.py.
torture: $(STAMP)
	$(BIN)/python tools/torture.py

lint: $(STAMP) $(MODULES) $(PLUGIN_MODULES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(NPM) run --silent lint
	$(PLUGIN) run --silent lint

types: $(STAMP)
	$(BIN)/mypy

pages: $(PAGES)

$(PAGES): $(MODULES) $(WEB_SOURCES)
	$(NPM) run --silent build
	touch $@

$(MODULES): web/package-lock.json | $(STAMP)
	$(NPM) ci --loglevel=error
	touch $@

$(PLUGIN_MODULES): integrations/openclaw/package-lock.json | $(STAMP)
	$(PLUGIN) ci --loglevel=error
	touch $@

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crash: $(STAMP)
	HOLDFAST_CRASH_KILLS=100 $(BIN)/pytest tests/crash tests/continuation/test_leash_model.py -q -n 2 --dist worksteal

bench: $(STAMP)
	$(BIN)/python bench/coldstart.py
	$(BIN)/python bench/agenda.py
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/fit.py

# Every page at three widths in both themes, over a home full of examples: PNG files in build/shots, to look at.
shots: pages
	PYTHONPATH=tests:tests/gateway $(BIN)/python tools/shots.py

# After a change of what the gateway answers: the types that the pages read it by.
wire: $(STAMP) $(MODULES)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/wire_types.py

# After a new migration: what all of them lead to, which new stores are made from.
schema: $(STAMP)
	$(BIN)/python tools/schema.py

docs: $(STAMP)
	$(BIN)/python -m holdfast.config.docs > docs/configuration.md

# Every file is held against its hash; what builds our own package is among them, so that nothing else is fetched.
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --no-deps --requirement requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $(STAMP)

# After a change of constraints.txt.
# A real OpenID provider for tests/gateway/test_oidc.py, beside the tree; without it those are skipped by name.
oidc-provider: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --no-save --no-package-lock --prefix $(VENV)/oidc oidc-provider@9.13.3

lock: $(STAMP)
	$(BIN)/python tools/lock.py

clean:
	rm -rf $(VENV) web/node_modules integrations/openclaw/node_modules integrations/openclaw/dist src/holdfast/gateway/built build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
