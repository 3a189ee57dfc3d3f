# Everything that is done with this repository, one word each; `make` alone lists them.

PYTHON ?= $(firstword $(shell command -v python3.11 python3 python 2>/dev/null))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Bytecode is kept, whatever the shell says: without it every process that imports torch compiles it for four seconds.
unexport PYTHONDONTWRITEBYTECODE

# Stamps carry the digest of what they installed: nothing is installed twice, and a changed lock is installed again.
digest = $(shell cat $(1) | sha256sum | cut -c1-16)
RUN_STAMP := $(VENV)/.installed-run-$(call digest,locks/run.lock locks/torch.lock locks/sketches.lock pyproject.toml)
DEV_STAMP := $(VENV)/.installed-dev-$(call digest,locks/dev.lock locks/torch.lock locks/sketches.lock pyproject.toml)
# The tools include all that a run needs.
INSTALLED := $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),$(RUN_STAMP))

.PHONY: help install install-dev run test test-quick test-cluster lint compile bench images docs site clean lock

help: ## list these targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## make .venv with what a run needs

install-dev: $(DEV_STAMP) ## make .venv with what tests and checks need

run: $(INSTALLED) ## run the training pipeline of the example project on this machine
	@$(BIN)/gatehouse run pipelines/projects/flights $(ARGS)

test: $(DEV_STAMP) ## run the tests
	@$(BIN)/python -m pytest -n 4 --max-worker-restart=0 --no-loadscope-reorder --durations=20 $(ARGS)

test-quick: $(DEV_STAMP) ## run the tests that start no server, no process and no framework
	@$(BIN)/python -m pytest -n 2 --max-worker-restart=0 --no-loadscope-reorder --quick --durations=20 $(ARGS)

test-cluster: $(DEV_STAMP) ## run the tests on the cluster of the profile in GATEHOUSE_CLUSTER (30 minutes)
	@$(BIN)/python -m pytest -p no:xdist -v tests/cluster $(ARGS)

lint: $(DEV_STAMP) ## check format, style, types and the direction of imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy -p gatehouse
	$(BIN)/mypy -p gatehouse --python-version 3.14
	$(BIN)/lint-imports --no-logo

compile: $(INSTALLED) ## compile and check the pipelines of every project; those of flights go to pipelines/compiled
	@$(BIN)/python compile.py

bench: $(DEV_STAMP) ## run the benchmarks
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; PYTHONPATH=benchmarks $(BIN)/python "$$file" $(ARGS); done

docs: $(DEV_STAMP) ## draw the figures and write the components' READMEs
	@for file in docs/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

images: $(INSTALLED) ## build the container images (needs a container engine; see docs/images.md)
	@bash images/build.sh $(ARGS)

site: ## build the documentation as a site into build/site
	@test -x build/site-tools/bin/mkdocs || { $(PYTHON) -m venv build/site-tools && \
		build/site-tools/bin/pip install -qq --no-deps --require-hashes -r locks/docs.lock; }
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build && echo build/site/index.html

clean: ## remove what the targets make, but not .venv nor the store
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

lock: $(DEV_STAMP) ## resolve the versions in locks/ anew (UPGRADE=1: to the newest)
	@bash locks/lock.sh

$(VENV)/bin/python:
	@command -v "$(PYTHON)" >/dev/null || { echo "error: The locked versions are for Python 3.11, and there is no $(or $(PYTHON),python3.11) here. Name one with make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit(f"error: The locked versions are for Python 3.11, found {sys.version.split()[0]} at {sys.executable}. Name another with make PYTHON=...")'
	@echo "Making $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv $(VENV)

# The locks are complete: nothing is resolved, so `--no-deps`; imports compile what they need, so `--no-compile`.
define install
	@echo "Installing $(1) (minutes, once)"
	@rm -f $(VENV)/.installed-*
	@$(PIP) install --no-deps --no-compile --require-hashes -r $(1)
	@$(PIP) install --no-deps --no-compile --require-hashes -r locks/sketches.lock
	@$(PIP) install --no-compile -r locks/torch.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
endef

$(RUN_STAMP): | $(VENV)/bin/python
	$(call install,locks/run.lock)
	@touch $@

$(DEV_STAMP): | $(VENV)/bin/python
	$(call install,locks/dev.lock)
	@touch $@
