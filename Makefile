# Everything starts here. Each target sets up what it needs, and re-uses what is there already:
# Debian packages, the virtual environment .venv, a Docker Engine, the images.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test bench models lint clean environment

PYTHON := .venv/bin/python
# Runs a command with a Docker Engine that answers, a private one where there is none.
ENGINE := $(PYTHON) -m tools.engine run
# Makes sure of the images named, or of all, then becomes the command.
IMAGES := $(PYTHON) -m tools.images

help:  ## what can be made
	@awk -F ':.*##' '/^[a-z-]+:.*##/ { printf "make %-8s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment  ## eight inference containers under plain Docker and under dlsched
	@$(ENGINE) -- $(IMAGES) inference -- $(PYTHON) -m benchmarks.demo

test: lint  ## all checks and tests, with a real Docker Engine where one can be had
	@$(ENGINE) --optional -- $(IMAGES) -- $(PYTHON) -m pytest

bench: environment  ## the measurements that the README quotes
	@$(ENGINE) -- $(IMAGES) -- $(PYTHON) -m benchmarks.bench

models: environment  ## train the examples' ONNX models again
	@$(PYTHON) -m tools.environment --train
	@.build/train-venv/bin/python examples/images/inference/train.py

lint: environment  ## formatting, lint, types, import contracts
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports

clean:  ## remove all that was made here, and what crashed runs have left
	@if [ -d .build/engine ]; then $(MAKE) --no-print-directory environment \
		&& $(PYTHON) -m tools.engine clear; fi
	rm -rf .build .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# On a bare Debian machine there may be no Python at all yet.
environment:
	@command -v python3 >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get -q update \
		&& apt-get -q -y install --no-install-recommends python3-venv; } \
		|| { echo "error: no python3: apt-get install python3-venv" >&2; exit 1; }
	@python3 -m tools.environment
