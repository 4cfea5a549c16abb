# make run    set up everything and run the daemon on a simulated array, until Ctrl-C
# make demo   the same array as recordings: train, decide, evaluate, examine, explain; look into demo/
# make test   set up everything, lint, check types, run the tests (about ten minutes on two cores)
# make test-fast   the tests that start no process (under a minute)
# make soak   long tests: hundreds of kills, hours of sound; one table at the end
# make screenshots   pictures of the dashboard for the documents
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Twice quiet: errors only. An index that lacks a package is a warning for every package.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# Half of what tests do is wait: for daemons, brokers and browsers that they start.
WORKERS ?= $(shell expr 5 \* $$(nproc) / 2)
# For the inner loop: what computes, without the longest.
FAST := tests/core tests/health tests/learners tests/model tests/stages tests/storage tests/training tests/test_architecture.py tests/transport/test_wire.py
LONG := learners/test_array.py learners/test_contract.py learners/test_gem_med_exact.py health/test_fault_matrix.py
# Some machines forbid compiled files; hundreds of processes would each compile everything again.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := pipeline tests benchmarks fixtures

.PHONY: run demo test test-fast lint types pytest soak screenshots clean

run: $(VENV)/.run
	$(BIN)/gemmed run

demo: $(VENV)/.run
	$(BIN)/gemmed simulate demo/training --recordings 40 --fault-share 0.05,0.05,0.05,0.3 --seed 1
	$(BIN)/gemmed simulate demo/passing --recordings 12 --fault-share 0.2 --seed 2
	test -d demo/model || $(BIN)/gemmed train demo/training --labels demo/training/labels.csv --model demo/model
	$(BIN)/gemmed replay demo/passing --model demo/model --out demo/decisions.jsonl
	$(BIN)/gemmed evaluate demo/decisions.jsonl --labels demo/passing/labels.csv --truth demo/passing/truth.csv --out demo
	$(BIN)/gemmed health demo/passing --model demo/model --out demo/health.html --json demo/health.json
	$(BIN)/gemmed explain r001@5 --recordings demo/passing --model demo/model --out demo/explanation.png
	$(BIN)/gemmed simulate demo/day --day --hours 0.25 --start-hour 9 --passages 600 --seed 3
	$(BIN)/gemmed replay demo/day --pattern '{recording}_{time:%Y%m%d_%H%M%S}.flac' --model pipeline/starter --out demo/day.jsonl
	$(BIN)/gemmed passages demo/day.jsonl
	$(BIN)/gemmed evaluate demo/day.jsonl --labels demo/day/labels.csv --out demo/day-evaluation

test: lint
	@$(MAKE) --no-print-directory --jobs 2 types pytest

lint: $(VENV)/.test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.test
	$(BIN)/mypy

pytest: $(VENV)/.test
	$(BIN)/python -m pytest -m "not soak" --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -m "not soak" --no-processes --numprocesses $$(nproc) --dist loadfile $(addprefix --ignore=tests/,$(LONG)) $(FAST)

# What takes a minute elsewhere may take many here.
soak: $(VENV)/.test
	GEMMED_TESTS_TIMEOUT=3600 $(BIN)/python -m pytest -m soak --numprocesses 2 --dist loadfile -o faulthandler_timeout=7200

screenshots: $(VENV)/.test
	GEMMED_SCREENSHOTS=docs/images/dashboard $(BIN)/python -m pytest tests/web/test_screenshots.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "gemmed needs Python 3.11 or newer; give one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || deploy/debian-packages.sh python3-venv
	@echo "making the virtual environment $(VENV) (10 s)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing gemmed and its packages into $(VENV) (about 1 minute)"
	@$(PIP) install --constraint constraints.txt --editable '.[plots,web]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing gemmed and the packages of its tests into $(VENV) (about 2 minutes)"
	@$(PIP) install --constraint constraints.txt --editable '.[test]'
	@echo "compiling loops of gemmed and librosa (half a minute)"
	@$(BIN)/python -m pipeline.learners
	@$(BIN)/python -c 'import librosa.feature.spectral'
	@touch $@ $(VENV)/.run
