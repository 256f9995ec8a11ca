# Needs Python 3.11 or newer and make; everything else goes into .venv.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-hiring demo-unknown test lint typing crash conformance bench soak clean strace postgresql

VENV := .venv
BIN := $(VENV)/bin
# pytest processes; many tests wait for a disk or another process, so three keep two cores busy
WORKERS ?= 3
PYTEST_ARGS ?=

# The first interpreter that is new enough and can make a virtual environment. A version manager may
# put a name on PATH that does not run, so each candidate is tried, not just looked up.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1 \
	&& { echo "$$p"; break; }; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

help: ## show this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter for a new .venv;"
	@echo "WORKERS=4 and PYTEST_ARGS='-k ledger -x' go to pytest."

demo: $(VENV)/.demo ## open tickets on a real server, with and without Counterfoil, through kills and retries
	$(BIN)/counterfoil demo tickets

demo-hiring: $(VENV)/.demo ## kill the worker of a workflow that takes days, in about twenty ways
	$(BIN)/counterfoil demo hiring --quick

demo-unknown: $(VENV)/.demo ## lose a mail server's reply, and settle what nobody knows
	$(BIN)/counterfoil demo unknown

test: $(VENV)/.dev strace postgresql ## run the tests (all but the soak runs)
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not soak' $(PYTEST_ARGS)

lint: $(VENV)/.dev ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

typing: $(VENV)/.dev ## check types only
	$(BIN)/mypy

crash: $(VENV)/.dev postgresql ## run the full crash matrices
	COUNTERFOIL_CRASH_EVERY=1 $(BIN)/python -m pytest -n $(WORKERS) -m '' -o faulthandler_timeout=0 tests/crash \
	tests/langgraph/test_kills.py tests/cases/test_step_result_and_checkpoint_reach_the_disk_together.py tests/faults $(PYTEST_ARGS)

conformance: $(VENV)/.dev postgresql ## run every behaviour of a store in each colour on each database
	COUNTERFOIL_EVERY_PAIR=1 $(BIN)/python -m pytest -n $(WORKERS) -m 'not soak' \
	tests/conformance tests/row_security $(PYTEST_ARGS)

soak: $(VENV)/.dev postgresql ## run the long tests
	$(BIN)/python -m pytest -n $(WORKERS) -m soak -o faulthandler_timeout=0 $(PYTEST_ARGS)

bench: $(VENV)/.dev ## run the benchmarks
	$(BIN)/python -m benchmarks

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Some tests count flushes to the disk from outside; without strace they are skipped.
strace:
	@command -v strace >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing strace ..." \
		&& { apt-get install -qqy strace || { apt-get update -qq && apt-get install -qqy strace; }; } >/dev/null 2>&1; } \
		|| echo "strace is not installed: the tests that count flushes are skipped (apt-get install strace)."

# The tests start servers of their own, PostgreSQL and PgBouncer, and need only the programs.
postgresql: $(VENV)/.dev
	@$(BIN)/python -m tests.postgres.install

# Stamps. The demo installs only what it needs; the development environment contains the demo's.

$(VENV)/.dev: $(VENV)/.created pyproject.toml
	@echo "Installing Counterfoil and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $(VENV)/.demo $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml
	@echo "Installing Counterfoil and the demo into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.created:
	@test -n "$(PYTHON)" || { \
		echo "No Python 3.11 or newer that can make virtual environments was found." >&2; \
		echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) does not run or is older than Python 3.11." >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment: its venv or ensurepip part is missing." >&2; \
		echo "Debian, Ubuntu: apt-get install python3-venv (or python3.X-venv); elsewhere install the full Python." >&2; \
		exit 1; }
	@# Dependency groups need pip 25.1.
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@
