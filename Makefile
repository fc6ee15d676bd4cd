# `make` lists the targets.

# The first Python here that is new enough, or name one: make test PYTHON=/opt/python3.12/bin/python3
NEW_ENOUGH := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$candidate -c "$(NEW_ENOUGH)" 2>/dev/null && { echo $$candidate; break; }; done)

BIN := .venv/bin
INSTALLED := .venv/.installed
INSTALLED_DEV := .venv/.installed-dev
# --no-deps wherever a lock is installed: it names all packages already, and pip would resolve them again,
# find a newer release of one that came out since, and refuse it for want of a hash
PIP := $(BIN)/python -m pip --disable-pip-version-check
BENCH := .venv-bench
INSTALLED_BENCH := $(BENCH)/.installed
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --custom-compile-command "make lock"
COMPOSE := docker compose --file deploy/compose.yaml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all quick browser screenshots chaos mutants up compose-up compose-down check lint types bench client lock audit clean soak

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## see Muster work: no servers needed, everything on this machine
	@$(BIN)/python manage.py demo $(ARGS)

test: ARGS := $(or $(ARGS),-m "not slow and not twin")
test: $(INSTALLED_DEV) ## what each change runs, or what you name; make test ARGS="-k retry"
	@deploy/install-test-servers.sh
	@# services are started by the hundred: each would compile our modules anew if none could keep the result
	@env -u DATABASE_URL -u BROKER_URL -u REDIS_URL -u PYTHONDONTWRITEBYTECODE \
		$(BIN)/python -m pytest --numprocesses 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-all: ## all tests: what is slow, the small storms, and scenarios on the embedded installation
	@$(MAKE) --no-print-directory test ARGS=

quick: ## the everyday run: all but scenarios and what is slow
	@$(MAKE) --no-print-directory test ARGS='-m "not slow and not scenario" $(ARGS)'

browser: ## the console and the admin in a real Chromium, half a minute on an idle machine
	@$(MAKE) --no-print-directory test ARGS='tests/browser --numprocesses 0 $(ARGS)'

screenshots: $(INSTALLED_DEV) ## the pictures of the console in docs/images, of an installation made for them
	@deploy/install-test-servers.sh
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

chaos: $(INSTALLED_DEV) ## 10,000 executions, and faults all the while; make chaos ARGS="--seed 7"
	@deploy/install-test-servers.sh
	@env -u DATABASE_URL -u BROKER_URL -u REDIS_URL $(BIN)/python -m tests.chaos $(ARGS)

mutants: $(INSTALLED_DEV) ## break one line after another: does a test notice?
	@deploy/install-test-servers.sh
	@env -u DATABASE_URL -u BROKER_URL -u REDIS_URL $(BIN)/python -m tests.chaos.mutants $(ARGS)

up: $(INSTALLED) ## every service on this machine, in one terminal; make up ARGS="--workers 4"
	@$(BIN)/python manage.py up $(ARGS)

compose-up: ## PostgreSQL, RabbitMQ, Redis and Muster in containers
	@deploy/make-env.sh
	@$(COMPOSE) version >/dev/null 2>&1 || \
		{ echo "make compose-up needs docker with the compose plugin; make up needs nothing" >&2; exit 1; }
	@$(COMPOSE) --profile app up --build --detach --wait
	@echo "Muster listens on http://127.0.0.1:8000 (make compose-down stops it, data is kept)"

compose-down: ## stop what `make compose-up` started; its data is kept
	@$(COMPOSE) --profile app down

check: lint types ## lint and types

lint: $(INSTALLED_DEV) ## style, format, and imports that go down only
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache  # its cache has called broken contracts kept

types: $(INSTALLED_DEV) ## mypy
	@$(BIN)/mypy

bench: $(INSTALLED_BENCH) ## measure, against others too; make bench ARGS="--quick"
	@deploy/install-test-servers.sh
	@env -u DATABASE_URL -u BROKER_URL -u REDIS_URL $(BENCH)/bin/python -m benchmarks $(ARGS)

soak: $(INSTALLED_BENCH) ## a day of steady work: is all bounded? make soak ARGS="--minutes 20 --keep-minutes 4"
	@deploy/install-test-servers.sh
	@env -u DATABASE_URL -u BROKER_URL -u REDIS_URL $(BENCH)/bin/python -m benchmarks.soak $(ARGS)

client: $(INSTALLED_DEV) ## the Python client, muster_client, as a wheel in dist/
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -R muster_client LICENSE "$$copy" && \
		$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir dist "$$copy/muster_client"
	@ls -1 dist/muster_client-*.whl

lock: $(INSTALLED_DEV) ## resolve requirements*.in into requirements*.txt, with hashes
	@$(LOCK) requirements.in --output-file requirements.txt
	@$(LOCK) requirements-otel.in --constraint requirements.txt --output-file requirements-otel.txt
	@$(LOCK) requirements-dev.in --constraint requirements.txt --output-file requirements-dev.txt
	@$(LOCK) requirements-bench.in --constraint requirements.txt --output-file requirements-bench.txt

audit: $(INSTALLED_DEV) ## hashes, and known vulnerabilities; make audit OSV=all.zip
	@$(BIN)/python deploy/audit.py $(if $(OSV),--osv $(OSV))

clean: ## remove .venv and caches; var/, which holds your data, stays
	rm -rf .venv $(BENCH) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis htmlcov
	rm -f .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c "$(NEW_ENOUGH)" 2>/dev/null; then \
		echo "Muster needs Python 3.11 or newer with its venv module;" \
			"found: $$($(or $(PYTHON),python3) --version 2>&1)." \
			"Name one with: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@$(PYTHON) -m venv .venv || \
		{ rm -rf .venv; echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(INSTALLED): requirements.txt | $(BIN)/python
	@echo "Installing requirements.txt into .venv (about half a minute the first time) ..."
	@$(PIP) install -qq --no-deps --require-hashes --requirement requirements.txt
	@touch $@

$(INSTALLED_DEV): requirements-dev.txt requirements.txt | $(BIN)/python
	@echo "Installing requirements-dev.txt into .venv (about a minute the first time) ..."
	@$(PIP) install -qq --no-deps --require-hashes --requirement requirements-dev.txt
	@touch $(INSTALLED) $@

# of its own: what Muster is compared with must not reach the environment that it is tested in
$(INSTALLED_BENCH): requirements-bench.txt requirements.txt | $(BIN)/python
	@echo "Installing requirements-bench.txt into $(BENCH) (about a minute the first time) ..."
	@$(BIN)/python -m venv $(BENCH) && echo '*' > $(BENCH)/.gitignore
	@$(BENCH)/bin/python -m pip --disable-pip-version-check install -qq --no-deps --require-hashes \
		--requirement requirements-bench.txt
	@touch $@
