# Needs Python 3.11 or newer with its venv module; everything else is installed into .venv.

VENV := .venv
PYTHON := $(VENV)/bin/python
LOG := $(VENV)/setup.log

# Versions that the tests run on come first; `python3` may be any newer one.
CANDIDATES := python3.13 python3.12 python3.11 python3

unexport PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV

.PHONY: help demo test check mutations simulation clean
.DEFAULT_GOAL := help

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/with-core ## Kill a worker after the effect, before its receipt (DB=postgresql://... ARGS=...)
	@$(PYTHON) -m settled demo $(if $(DB),--db '$(DB)') $(ARGS)

test: $(VENV)/with-test ## Run every test and check, on SQLite and a real PostgreSQL (ARGS=tests/test_x.py)
	@$(PYTHON) -m pytest -n 2 --dist worksteal $(ARGS)

check: $(VENV)/with-test ## Run ruff, mypy, pyright and import-linter alone
	@$(PYTHON) -m pytest -q -n 2 tests/test_static_checks.py $(ARGS)

mutations: $(VENV)/with-test ## Break each rule on purpose and see that a test fails (ARGS='--only lifecycle')
	@$(PYTHON) tests/mutations.py $(ARGS)

simulation: $(VENV)/with-test ## Run thousands of histories with faults at every step (SEED=1 HISTORIES=2000)
	@$(PYTHON) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(HISTORIES),--histories $(HISTORIES))

clean: ## Remove .venv and everything that was built or cached
	@rm -rf $(VENV) build dist *.egg-info .coverage* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/with-core: EXTRAS :=
$(VENV)/with-test: EXTRAS := [test,pg-local]

# A .venv that was copied or moved, or whose Python is gone, is made anew.
ifneq ($(shell $(PYTHON) -c '' 2>/dev/null && cat $(VENV)/made-in),$(CURDIR))
.PHONY: $(VENV)/with-core $(VENV)/with-test
endif

$(VENV)/with-core $(VENV)/with-test: pyproject.toml
	@if [ "$$(cat $(VENV)/made-in 2>/dev/null)" != "$(CURDIR)" ] || ! $(PYTHON) -c '' 2>/dev/null; then \
		found=; said=; \
		for candidate in $(CANDIDATES); do \
			rm -rf $(VENV); \
			$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
			said=$$($$candidate -m venv $(VENV) 2>&1) && found=$$candidate && break; \
		done; \
		if [ -z "$$found" ]; then \
			rm -rf $(VENV); \
			echo "settled needs Python 3.11 or newer with its venv module; tried: $(CANDIDATES)." >&2; \
			echo "  Install one (Debian, Ubuntu: apt install python3 python3-venv) and run make again." >&2; \
			[ -z "$$said" ] || echo "$$said" >&2; \
			exit 1; \
		fi; \
		printf '%s\n' "$(CURDIR)" > $(VENV)/made-in; \
	fi; \
	echo "Setting up $(VENV): $$($(PYTHON) -V), settled$(EXTRAS)" >&2; \
	if ! $(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.$(EXTRAS)' >$(LOG) 2>&1; then \
		cat $(LOG) >&2; \
		echo "The installation into $(VENV) failed; pip's reasons are above." >&2; \
		exit 1; \
	fi; \
	touch $@ $(VENV)/with-core
