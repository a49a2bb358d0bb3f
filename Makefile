# `make` alone prints help. A target's help is the text after its ##.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PREFIX ?= /opt/nodeagent
DESTDIR ?=
PURGE ?= 0
NODEAGENT_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run demo test lint types arch unit kube soak bench docs catalog manifest unit-verify test-systemd \
        install uninstall clean

help: ## print this help
	@echo "nodeagent: watches the node of a GPU Kubernetes cluster it runs on, and says what is wrong and what to do"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "First time: make run, then in a second shell: .venv/bin/nodeagent status"

# To run, the package is installed into the environment, from a copy: nothing is written into the tree.
# To work on it, make test installs it as it lies in the tree, and that is what runs from then on.
SOURCES := $(shell find nodeagent -name '*.py' -o -name '*.toml' -o -name '*.md')
READY := $(if $(wildcard $(VENV)/.test),$(VENV)/.test,$(VENV)/.run)

$(VENV)/.run: setup.cfg pyproject.toml $(SOURCES)
	@scripts/ensure.sh run
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -R nodeagent setup.cfg pyproject.toml README.md "$$copy" \
		&& $(BIN)/pip install --quiet --disable-pip-version-check "$$copy"
	@touch $@

$(VENV)/.test: setup.cfg pyproject.toml
	@scripts/ensure.sh test
	@test -x $(BIN)/pip || { echo "Making a virtual environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing the test tools into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

run: $(READY) ## install what is missing, start the agent in the foreground
	@echo "Look at it from a second shell:  $(BIN)/nodeagent status     (stop it with Ctrl-C)"
	@$(BIN)/nodeagent $(NODEAGENT_ARGS) run

demo: $(READY) ## eight scripted GPUs, faults and recoveries, no GPU needed; ends by itself in 90 s
	@scripts/ensure.sh demo
	@$(BIN)/python tests/demo.py

test: $(VENV)/.test lint types arch unit ## everything that CI runs

lint: $(VENV)/.test ## style and names
	@$(BIN)/ruff check --quiet nodeagent tests

types: $(VENV)/.test ## strict types
	@$(BIN)/mypy

arch: $(VENV)/.test ## import contracts
	@$(BIN)/lint-imports --config setup.cfg --no-cache >build-arch.log 2>&1 || { cat build-arch.log; rm -f build-arch.log; exit 1; }
	@rm -f build-arch.log

unit: $(VENV)/.test ## every test (root tests skip elsewhere, never in CI)
	@$(BIN)/python -m pytest -m "not alone" --numprocesses auto --dist worksteal
	@$(BIN)/python -m pytest -m alone

kube: ## build the real Kubernetes programs of the cluster tests into ~/.cache, once (KUBE_BIN=DIR names ready ones)
	@scripts/kube.sh build

soak: $(VENV)/.test ## slow loops: kills, memory slopes
	@$(BIN)/python -m pytest tests/soak/*.py --timeout 3600

bench: $(VENV)/.test ## what the agent costs, measured on this machine
	@$(BIN)/python tests/bench/run.py

docs: $(VENV)/.test ## write the generated pages of docs/
	@$(BIN)/python -m nodeagent.docs_generate

clean: ## remove the virtual environment, caches and build output
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find nodeagent tests -name __pycache__ -prune -exec rm -rf {} +

catalog: $(VENV)/.test ## write systemd/nodeagent.catalog from the event catalogue
	@$(BIN)/python -m nodeagent.report.events > systemd/nodeagent.catalog

manifest: ## write daemonset.yaml from deploy/
	@scripts/manifest.sh > daemonset.yaml

unit-verify: ## systemd's verifier and the exposure score of the shipped unit
	@systemd/verify.sh

test-systemd: $(VENV)/.test ## boot systemd in private namespaces and run the shipped unit in it
	@$(BIN)/python -m pytest tests/systemd

install: ## install on this host (PREFIX=/opt/nodeagent, DESTDIR=): unit, command, catalog, configuration
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" PYTHON="$(PYTHON)" systemd/install.sh

uninstall: ## remove it; keeps an edited configuration and the memory unless PURGE=1
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" PURGE="$(PURGE)" systemd/uninstall.sh
