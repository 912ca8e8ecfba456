# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
OUT    ?= results

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow check bench docs clean

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=... to choose one") if sys.version_info < (3, 11) else None'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/scalinglimits demo --out $(OUT)/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow -n auto --dist loadfile

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt ".[bench]" || echo "public code for comparison could not be installed; naive twins are used"
	$(BIN)/python benchmarks/run.py

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) $(OUT) docs/_build .mypy_cache .ruff_cache .pytest_cache
