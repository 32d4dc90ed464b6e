PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test check bench tables docs clean

setup: $(READY)  ## create .venv with everything needed

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)  ## five digits known, five discovered: a story, and a report in demo/
	$(BIN)/limen demo --out demo

test: $(READY)  ## all tests, also of every example in README, docs and docstrings
	$(BIN)/python -m pytest

check: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## speed and memory, as ratios measured in one run
	$(BIN)/python -m benchmarks

tables: $(READY)  ## measure again every figure shown in README and docs
	$(BIN)/python examples/digits_stream.py --write
	$(BIN)/python examples/digits.py --out docs/images
	rm docs/images/digits.png
	$(BIN)/python examples/accommodation.py --redraw
	$(BIN)/python examples/reproduction.py
	$(BIN)/python examples/method.py
	$(BIN)/python examples/method_targets.py
	$(BIN)/python examples/method_pictures.py
	$(BIN)/python examples/screenshot.py results/fashion-mnist-limen docs/images/report.png
	$(BIN)/python examples/page.py docs/images
	$(BIN)/python -m benchmarks --write
	$(BIN)/python docs/examples.py --write

docs: $(READY)  ## the documentation in docs/_build/html, warnings are errors
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build/html

clean:
	rm -rf .venv docs/_build demo build
