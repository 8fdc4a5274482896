# Everything starts here. Each target sets up what it needs, and re-uses what is there already:
# Debian packages, the virtual environment .venv, a Docker Engine, the images.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo demo-cluster test test-all test-browser vendor durations test-v2 bench gpu-truth torture models dashboard docs man wheels release lint clean environment python install uninstall

PYTHON := .venv/bin/python
# Runs a command with a Docker Engine that answers, a private one where there is none.
ENGINE := $(PYTHON) -m tools.engine run
# Makes sure of the images named, or of all, then becomes the command.
IMAGES := $(PYTHON) -m tools.images

help:  ## what can be made
	@awk -F ':.*##' '/^[a-z0-9-]+:.*##/ { printf "make %-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment  ## two services beside busy neighbours, before and after dlsched has them: three minutes
	@$(ENGINE) -- $(IMAGES) inference -- $(PYTHON) -m benchmarks run demo

demo-cluster: environment  ## trainings on three hosts of one swarm, one killed and one drained while they run
	@$(PYTHON) -m benchmarks run demo-cluster

# Random draws are for test-all: what they find is kept as an example of its case.
test: lint  ## what has to pass before a change lands, with a real Docker Engine where one can be had
	@python3 -m tools.environment --tests --browser
	@$(ENGINE) --optional -- $(IMAGES) -- $(PYTHON) -m tools.test_lanes $(ARGS)

# Where cases marked `contract` are: the adapter of the engine, on an engine of another release.
CONTRACT := tests/runtime/docker tests/torture/test_faults.py

test-all: lint  ## all tests, one part after the other: about an hour (root, Debian)
	@python3 -m tools.environment --tests --browser
	@DLSCHED_REQUIRE_ENGINE=1 DLSCHED_PROPERTIES=dev $(ENGINE) -- $(IMAGES) systemd -- \
		$(PYTHON) -m tools.test_lanes --all
	@$(PYTHON) -m tools.engine run --debian 13 -- $(PYTHON) -m pytest -q -m contract $(CONTRACT)
	@$(PYTHON) -m tests.v2host
	@$(PYTHON) -m tests.v2host --debian 13

test-browser: environment  ## the page in a real browser, metrics and alerts with a real Prometheus
	@python3 -m tools.environment --tests --browser
	@$(ENGINE) --optional -- $(PYTHON) -m tools.test_lanes --only browser

durations: environment  ## keep what the last `make test` took: tests/durations.json
	@$(PYTHON) -m tools.test_durations

# GATE=1: only what .ci/run runs.
test-v2: environment  ## the tests of cgroup v2 and systemd, in an emulated host (root, Debian)
	@$(PYTHON) -m tests.v2host $(if $(GATE),--gate)

bench: environment  ## the measurements that README and docs quote
	@$(ENGINE) -- $(IMAGES) -- $(PYTHON) -m benchmarks run bench

# An interpreter of this host that has torch with CUDA; nothing of that size is downloaded.
TORCH_PYTHON := python3

gpu-truth:  ## what dlsched assumes of a GPU against the hardware (TORCH_PYTHON), in eight minutes
	@$(TORCH_PYTHON) -m benchmarks.gpu.truth

torture: environment  ## all that must not lose anything: deaths at every point, fuzzing, a long run
	@$(ENGINE) -- $(PYTHON) -m benchmarks run torture
	@$(PYTHON) -m benchmarks run fuzz
	@$(PYTHON) -m benchmarks run soak

models: environment  ## train the examples' ONNX models again
	@$(PYTHON) -m tools.environment --make models
	@.build/models-venv/bin/python examples/images/inference/train.py

# The version is pinned here, the bytes by tests/api/test_live_page.py.
UPLOT := uplot@1.6.32

vendor:  ## dlsched/web/vendor, the chart library as its makers packed it (npm)
	@mkdir -p .build/vendor && cd .build/vendor && npm pack --silent $(UPLOT) && tar -xzf uplot-$(UPLOT:uplot@%=%).tgz
	@cd .build/vendor/package && cp LICENSE dist/uPlot.iife.min.js dist/uPlot.min.css ../../../dlsched/web/vendor/

dashboard: python  ## config/grafana/dlsched.json, from tools/dashboard
	@python3 -m tools.environment --make dashboard
	@.build/dashboard-venv/bin/python -m tools.dashboard

# Warnings are errors. After the first time it needs no network.
# Pages have parts that are made when they are read: all are read each time (-E).
SPHINX = .build/docs-venv/bin/sphinx-build -W -E --keep-going -q -d .build/docs/trees

docs: docs-environment  ## the documentation: .build/docs/html/index.html, and the man pages
	@$(SPHINX) -b html docs .build/docs/html
	@$(SPHINX) -b man docs .build/docs/man
	@echo ".build/docs/html/index.html"

wheels: environment  ## the wheels dlsched and dlsched-report, in dist/
	@$(PYTHON) -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist . packaging/report
	@ls dist

# dist/ becomes what that commit gives: uncommitted changes are not in it.
release: environment docs-environment  ## what users install, of the last commit, in dist/
	@python3 -m tools.environment --make release
	@$(PYTHON) -m tools.release

man: docs-environment  ## the man pages alone: .build/docs/man
	@$(SPHINX) -b man docs .build/docs/man

lint: environment  ## formatting, lint, types, import contracts, wording
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports
	@$(PYTHON) -m tools.wording

# Where `make install` puts things. DESTDIR: a package's root in place of the host's. WHEELS: a
# folder with all packages, for hosts that reach no package index (requirements/README.md).
PREFIX := /usr/local
INSTALL = python3 -m tools.install --prefix "$(PREFIX)" $(if $(DESTDIR),--destdir "$(DESTDIR)")

# Man pages need packages of an index: with WHEELS those are installed that `make man` made before.
install: python $(if $(WHEELS),,man)  ## dlsched as a systemd service of this host (PREFIX, DESTDIR, WHEELS)
	@$(INSTALL) install $(if $(WHEELS),--wheels "$(WHEELS)")

uninstall: python  ## give limits back, then remove it (PURGE=1: settings and state, too; FORCE=1)
	@$(INSTALL) uninstall $(if $(PURGE),--purge) $(if $(FORCE),--force)

clean:  ## remove all that was made here, and what crashed runs have left
	@if [ -d .build/engine ] || [ -d .build/engines ]; then $(MAKE) --no-print-directory environment \
		&& $(PYTHON) -m tools.engine clear && $(PYTHON) -m tools.engines clear; fi
	rm -rf .build .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

environment: python
	@python3 -m tools.environment

.PHONY: docs-environment
docs-environment: python
	@python3 -m tools.environment --make docs

# On a bare Debian machine there may be no Python at all yet.
python:
	@command -v python3 >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get -q update \
		&& apt-get -q -y install --no-install-recommends python3-venv; } \
		|| { echo "error: no python3: apt-get install python3-venv" >&2; exit 1; }
