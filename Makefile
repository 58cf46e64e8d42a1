# `make demo` shows it working, `make test` checks everything; both install what they need first.
# On Debian as root that includes the Vulkan driver and Chromium; elsewhere `make system` says what to install.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE ?= site
PYTEST_ARGS ?=
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: help system venv demo test test-long conformance lint format site bench wheel clean

help:
	@echo "make demo       read a picture of text natively and in a browser page"
	@echo "make test       lint, types, layers and all tests (under 25 minutes on 2 cores)"
	@echo "make test-long  the tests marked long as well"
	@echo "make conformance  the node cases again; writes their counts and docs/operators.md"
	@echo "make lint       ruff, mypy --strict, import-linter"
	@echo "make site       a static folder with the page and all it needs, in $(SITE)/"
	@echo "make bench      webrt beside onnxruntime, natively and in Chromium (long)"
	@echo "make wheel      the two pure wheels, webrt and webrt-compiler, in dist/"
	@echo "make clean      removes what these made"

system:
	@PYTHON="$(PYTHON)" sh .ci/system

venv: $(STAMP)

$(STAMP): pyproject.toml | system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "webrt needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing webrt and what it needs into $(VENV) (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[native,dev]'
	@touch $@

demo: venv
	$(BIN)/python examples/ocr_demo.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

test-long: lint
	$(PYTEST) $(PYTEST_ARGS)

conformance: venv
	$(PYTEST) tests/conformance --conformance-json tests/conformance/conformance.json --deselect tests/conformance/test_report.py
	$(BIN)/python -m tests.conformance.report

site: venv
	$(BIN)/webrt site $(SITE)

bench: venv
	$(BIN)/python -m benchmarks

wheel: venv
	rm -f dist/*.whl
	$(BIN)/python -m webrt.cli.wheels dist

clean:
	rm -rf $(VENV) build dist $(SITE) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
