# The two commands: `make demo` and `make test`. Everything installs into .venv with the versions of constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2

.PHONY: setup demo check test test-slow docs clean

setup: .venv/.developer

.venv/.user: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable .
	touch $@

.venv/.developer: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	touch $@ .venv/.user

demo: .venv/.user
	$(BIN)/regard demo

check: .venv/.developer
	$(BIN)/ruff format --check src tests docs
	$(BIN)/ruff check src tests docs
	$(BIN)/mypy

# torch.compile does not run under the shape hook, so compiled paths have a process of their own.
test: check
	$(BIN)/pytest -rs -n $(WORKERS) -m "not slow and not gpu" --ignore tests/compiled
	REGARD_SHAPES=off $(BIN)/pytest -rs -m "not slow and not gpu" tests/compiled

test-slow: .venv/.developer
	$(BIN)/pytest -rs -n $(WORKERS) -m slow

docs: .venv/.developer
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv build dist src/*.egg-info
