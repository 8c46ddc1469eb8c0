# What people try first. Every target calls its tools directly; the tools' settings are in pyproject.toml.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# Tests against published data sets look in this folder; without it they are skipped.
ifeq ($(origin SIMKV_DATA),undefined)
ifneq ($(wildcard ../shared/data),)
export SIMKV_DATA := $(abspath ../shared)
endif
endif

.PHONY: help .venv run experiments fidelity test test-long bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[.a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([.a-z-]+):.*## /\1\t/' | expand -t 12

# A set-up that was interrupted leaves no stamp, so the next one starts from nothing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "simkv needs Python 3.11 or later, this is %d.%d; name another: make PYTHON=python3.12 run" % sys.version_info[:2])'
	@test -f $@ || rm -rf .venv
	@rm -f $@
	@echo "setting up .venv" >&2
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip==26.3
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --build-constraint constraints.txt --editable '.[tokenizer]' --group dev
	@touch $@

.venv: $(READY) ## set up the virtual environment alone

run: $(READY) ## the default experiment on a shipped trace sample: table, figures and summary in results/
	$(BIN)/simkv sweep experiments/block_size/sweep.toml --out results/block_size
	$(BIN)/python -m experiments.block_size.figure results/block_size
	$(BIN)/simkv pick results/block_size

experiments: $(READY) ## every experiment, into results/
	for name in block_size layout prefix_capacity; do \
	    $(BIN)/simkv sweep experiments/$$name/sweep.toml --out results/$$name && \
	    $(BIN)/python -m experiments.$$name.figure results/$$name || exit; \
	done

fidelity: $(READY) ## simulated against measured servers: tables, figure, docs/validation.md
	@test -n "$(SIMKV_DATA)" || { echo "set SIMKV_DATA to the folder that holds data/ and vllm-v1/" >&2; exit 1; }
	$(BIN)/python scripts/fidelity.py --data $(SIMKV_DATA) --out results/fidelity --document docs/validation.md
	$(BIN)/python -m experiments.fidelity.figure results/fidelity

test: $(READY) ## lint, format, types, import contracts, spelling, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/typos
	$(BIN)/pytest -n 2

test-long: $(READY) ## the long property tests
	$(BIN)/pytest -n 2 -m slow --hypothesis-profile=long --timeout=3600

bench: $(READY) ## speed of the simulator, in requests a second
	$(BIN)/python scripts/bench.py

clean: ## remove the virtual environment, results and caches
	rm -rf .venv results dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find simkv gpu experiments scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
