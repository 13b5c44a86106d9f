# make demo   a real deploy, run and profile on three lab boards
# make bench  fleet beside its peers; BENCH="--scale 0.05 --rounds 2" for a quick look
# make changelog  the section that changelog.d/ gives; VERSION=X.Y.Z writes it into CHANGELOG.md
# make coverage  the tests of make test with lines and branches counted; red below the floor
# make docs   the pages as a site with search, in site/
# make test   format, lint (shellcheck too), types and the tests that a newcomer waits for
# make test-programs  the runners' real programs, fetched
# make test-contract  how today's packages of Debian, fetched, differ from our table and lab
# make test-gate  the longer tests that land a change as well; .ci/run runs both.
#   IN="tests/engine tests/cli" runs those of some folders, as the workflow does
SHELL := /bin/sh
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where an image sets it, each of a thousand processes would compile its modules again.
export PYTHONDONTWRITEBYTECODE :=
# Who runs make here runs this folder's files, also where another user owns them (root in CI).
export FLEET_TRUST := $(CURDIR)$(if $(FLEET_TRUST),:$(FLEET_TRUST))
STAMP := $(VENV)/.installed
LOCKED := .ci/requirements
SHELLS = $(shell find fleet tests .ci .devcontainer -name '*.sh')
WORKING := sh .ci/working.sh

.PHONY: demo docs changelog test coverage test-gate test-slow test-programs test-contract check bench clean

demo: $(STAMP)
	@$(BIN)/fleet demo

test: check
	@sh tests/setup.sh
	@$(BIN)/pytest -q -n $(or $(WORKERS),3) --dist worksteal -m "not slow and not gate and not programs"

# A run of its own: counting costs time. The floor is in pyproject.toml.
coverage: $(STAMP)-dev
	@sh tests/setup.sh
	@$(BIN)/pytest -q -n $(or $(WORKERS),3) --dist worksteal --cov --cov-report=term \
	  -m "not slow and not gate and not programs"

# Many of these tests wait for boards and links, so more of them run at once than of the others.
test-gate: $(STAMP)-dev
	@sh tests/setup.sh gate
	@$(BIN)/pytest -q -n $(or $(WORKERS),5) --dist worksteal -m "gate and not slow" $(IN)

test-slow: $(STAMP)-dev
	@sh tests/setup.sh slow
	@$(BIN)/pytest -q -m slow

# FLEET_QAIRT_SDK=/path adds a QAIRT SDK, EXECUTORCH_SOURCE=/path sources of pytorch/executorch.
test-programs: $(STAMP)-dev
	@sh tests/setup.sh
	@$(BIN)/python -m tests.programs.fetches
	@$(BIN)/pytest -q -n 2 -m programs tests/programs
	@$(BIN)/python -m tests.programs.seen

test-contract: $(STAMP)-dev
	@$(BIN)/pytest -q tests/contract
	@$(BIN)/python -m tests.contract.today

# Each line that fails prints the command that mends it; mypy and shellcheck name the line instead.
CURE = || { echo "to mend this, type: $(1)" >&2; exit 1; }
check: $(STAMP)-dev
	@$(BIN)/ruff format --check . $(call CURE,$(BIN)/ruff format .)
	@$(BIN)/ruff check . $(call CURE,$(BIN)/ruff check --fix .)
	@$(BIN)/mypy
	@$(BIN)/shellcheck -S warning $(SHELLS)

# An environment whose Python is gone is none.
$(shell [ -x $(BIN)/python ] || rm -f $(STAMP) $(STAMP)-dev)

$(STAMP): pyproject.toml $(LOCKED)/install.txt
	@sh .ci/venv.sh $(PYTHON) $(VENV) install $(filter demo,$(MAKECMDGOALS))

$(STAMP)-dev: $(LOCKED)/dev.txt $(STAMP)
	@sh .ci/venv.sh $(PYTHON) $(VENV) dev

docs: $(STAMP)-dev
	@NO_MKDOCS_2_WARNING=1 $(WORKING) "building the pages" $(BIN)/mkdocs build
	@echo "wrote site: open site/index.html"

changelog: $(STAMP)-dev
	@$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

bench: $(STAMP)
	@$(BIN)/python benchmarks/transfer.py $(BENCH)

clean:
	[ ! -d fleet-demo/.lab ] || $(BIN)/fleet lab down --dir fleet-demo/.lab
	rm -rf $(VENV) $(VENV).lock .lab fleet-demo
