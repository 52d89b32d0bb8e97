# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
WORKERS ?= 2

.PHONY: demo test fuzz check clean

# The stamp depends on pyproject.toml, so that set-up runs again only when the dependencies change.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet "$(TORCH)" numpy
	touch $@

demo: $(VENV)/.installed  ## analyse a made-up capture of RMSNorm as six eager operators
	$(BIN)/tracekit analyze sample_traces/neuron/rms_naive/capture --cache .cache/demo

test: $(VENV)/.dev  ## run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -q

fuzz: $(VENV)/.dev  ## run the property tests with examples that they have not seen
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -q -m hypothesis

check: $(VENV)/.dev  ## linter, formatter and type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .cache build dist
