# `make explain` and `make test` set everything up on first use, and nothing on the second.
# Another torch in an environment of its own: `TORCH=2.15.0 make test`.

DEFAULT_TORCH := 2.13.0
TORCH ?= $(DEFAULT_TORCH)
# A version, or the newest release, or a build of last night from an index that pip is told of.
TORCH_PACKAGE := $(if $(filter newest,$(TORCH)),torch,$(if $(filter nightly,$(TORCH)),--pre torch,torch==$(TORCH)))
PYTHON ?= python3
VENV := .venv$(if $(filter $(DEFAULT_TORCH),$(TORCH)),,-$(TORCH))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 3
SELECT ?= all
# The tests of a file run in one worker, which makes what they share once.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Each process that a test starts would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
# Benchmarks that are given programs or recordings; `python benchmarks/NAME.py --help` says what.
TAKE_INPUT := browse browser_pictures browser_recordings browser_tasks fuzz_browser minify_source minimal_source \
    model_classes one_minimal page ranks_tlparse ray_sweep triage_cases mutants suite_cpu values whole_commands \
    mcp_session graphmend_models

.PHONY: help explain test test-all test-times test-slow coverage mutants check format docs bench release clean

help:
	@echo "make explain    set up, and explain samples/graph_breaks.py"
	@echo "make test       set up, and run the tests (TORCH=2.15.0 for another torch)"
	@echo "make test-all   all tests but the slow ones (SELECT=rest: those that make test leaves out)"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-times measure the CPU time of each test, which tells make test what to leave out"
	@echo "make coverage   the tests, and which lines of the product they run in their own process"
	@echo "make mutants    do the tests notice small faults? (WITH='--count 5 --seed 1' for others)"
	@echo "make check      ruff, mypy --strict, import-linter"
	@echo "make format     format the code"
	@echo "make docs       write the generated pages of docs/, and build the site into build/docs"
	@echo "make release    build the packages, and try the wheel in a fresh environment; publishes nothing"
	@echo "make bench      the benchmarks that need no input, one after the other"

$(READY): pyproject.toml constraints.txt Makefile
	$(PYTHON) -c 'import sys; sys.exit("dynadiag needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_PACKAGE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    $(if $(filter $(DEFAULT_TORCH),$(TORCH)),torch==$(TORCH) --constraint constraints.txt) --editable '.[test,check]'
	touch $(READY)

explain: $(READY)
	$(BIN)/dynadiag explain samples/graph_breaks.py

test: $(READY)
	$(PYTEST)

test-all: $(READY)
	$(PYTEST) --select $(SELECT)

test-times: $(READY)
	rm -rf build/test-times
	$(PYTEST) --select all -p benchmarks.suite_cpu --cpu-times=build/test-times
	$(BIN)/python -m benchmarks.suite_cpu build/test-times

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(BIN)/python .ci/release.py --torch $(TORCH)

coverage: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[coverage]'
	$(PYTEST) --cov --cov-report term:skip-covered $(WITH)

mutants: $(READY)
	$(BIN)/python benchmarks/mutants.py $(WITH)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python docs/draw_imports.py
	$(BIN)/python docs/write_advice.py
	$(BIN)/python docs/write_outputs.py
	$(BIN)/python docs/write_schema.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	failed=; for program in $(filter-out $(TAKE_INPUT:%=benchmarks/%.py),$(wildcard benchmarks/*.py)); do \
	    echo "== $$program"; $(BIN)/python $$program || failed="$$failed $$program"; done; \
	    test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

clean:
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
