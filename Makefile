# Everything runs from .venv, which `make setup` builds from uv.lock. Only python3 and make are
# needed beforehand: uv is taken from PATH, or else installed into .uv, which belongs to this folder.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
UV := $(or $(shell uv --version >/dev/null 2>&1 && command -v uv),.uv/bin/uv)
BIN := .venv/bin
STAMP := .venv/.synced
CHAT := .venv/.chat
SERVE := .venv/.serve
# Tests write to /dev/shm if it has 4 GB free: stores fsync every change.
ROOM = $(shell { test "$$(df -Pk /dev/shm | awk 'END {print $$4}')" -gt 4000000 \
	&& ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm; } 2>/dev/null)
PYTEST = $(ROOM) $(BIN)/pytest -q -n 2 --dist worksteal --durations=5 --durations-min=1

# Container images often set it; each of the hundreds of processes that tests start would then recompile.
unexport PYTHONDONTWRITEBYTECODE
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
export UV_HTTP_TIMEOUT ?= 180

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Create .venv with everything the checks and tests need

.PHONY: chat
chat: $(CHAT) ## Chat with a model, no API key needed; ARGS="--model openai:gpt-5" passes options
	@$(BIN)/sennit chat $(ARGS)

.PHONY: serve
serve: $(SERVE) ## Serve sessions over HTTP on this machine; ARGS="--port 9000" passes options
	@$(BIN)/sennit serve $(ARGS)

# Only the packages for a chat or a server; installed extras stay. Output goes to stderr, because
# stdin and stdout of `make chat` belong to the conversation.
$(CHAT) $(SERVE): .venv/.%: pyproject.toml uv.lock
	@$(GET_UV) </dev/null >&2
	@$(UV) sync --frozen --inexact --no-default-groups --group $* $(WITH) </dev/null >&2
	@touch $@

# Some systems ship Python without ensurepip, which `venv` needs; there pip installs uv.
define GET_UV
{ $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	"Sennit needs Python 3.11 or newer, but $(PYTHON) is %s. Name a newer one, like this: " \
	"make $(MAKECMDGOALS) PYTHON=python3.12" % sys.version.split()[0])' \
&& { test -x $(UV) \
	|| { $(PYTHON) -m venv .uv && .uv/bin/python -m pip install --quiet uv; } \
	|| { rm -rf .uv; $(PYTHON) -m pip install --quiet --target .uv uv; }; }; }
endef
WITH = --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"

$(STAMP): pyproject.toml uv.lock
	@$(GET_UV)
	$(UV) sync --frozen $(WITH)
	@touch $@ $(CHAT) $(SERVE)

.PHONY: check
check: lint types ## Run the linter, type checker, layer contract and promise coverage

.PHONY: lint
lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.promises >/dev/null

.PHONY: types
types: setup
	$(BIN)/basedpyright --project pyproject.toml
	$(BIN)/basedpyright --project tests/typing
	$(BIN)/mypy --strict tests/typing/programs

.PHONY: format
format: setup ## Format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

# The type checker is single-threaded, so it runs beside the tests.
.PHONY: test test-full
test: lint ## Check everything and run the tests
	@$(MAKE) --no-print-directory -j 2 types quick-tests

test-full: lint ## Like test, plus slow tests and more property-test examples
	@$(MAKE) --no-print-directory -j 2 types all-tests

.PHONY: quick-tests all-tests
quick-tests: setup
	$(PYTEST) -m "not slow"

all-tests: setup
	$(PYTEST) --hypothesis-profile=thorough --timeout=300

.PHONY: docs reference
docs: reference .venv-docs/.synced ## Build the documentation into site/ and check its links
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict

reference: setup ## Generate docs/cli.md and docs/reference from the code
	$(BIN)/python -m scripts.cli_page
	$(BIN)/python -m scripts.reference

.venv-docs/.synced: pyproject.toml uv.lock | setup
	UV_PROJECT_ENVIRONMENT=$(@D) $(UV) sync --frozen --only-group docs $(WITH)
	@touch $@

.PHONY: promises
promises: setup ## List the tests behind each promise of docs/reliability.md and docs/security.md
	@$(BIN)/python -m tests.promises

.PHONY: torture
torture: setup ## Stress stores and turns with kills, disconnects, load and full disks; check the data
	$(BIN)/python -m tests.torture

.PHONY: bench
bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks

.PHONY: bench-retrieval
bench-retrieval: setup ## Measure memory retrieval on long conversations of two people and with an assistant
	$(BIN)/python -m benchmarks.retrieval

.PHONY: bench-cache
bench-cache: setup ## Measure what a provider's prompt cache can read of generated conversations (20 minutes)
	$(BIN)/python -m benchmarks.prompt_cache

.PHONY: bench-export
bench-export: setup ## Export a million messages as training data (several minutes)
	$(BIN)/python -m benchmarks.million

.PHONY: bench-peers
bench-peers: $(patsubst benchmarks/peers/%.txt,.venv-peers/%/.synced,$(wildcard benchmarks/peers/*.txt)) ## Compare with other session stores and turn loops
	@missed=0; for part in benchmarks.peers benchmarks.peers.learning benchmarks.peers.programs; \
		do $(BIN)/python -m $$part || missed=1; done; exit $$missed

# A virtual environment per peer, from the versions pinned beside its worker; and one for the clients that tests
# use and .venv cannot hold. Without --no-config uv would leave out what pyproject.toml excludes from .venv.
define PINNED_ENVIRONMENT
rm -rf $(@D)
@if test -x $(UV); \
	then $(UV) venv --quiet --python $(BIN)/python $(@D) \
		&& $(UV) pip install --no-config --quiet --python $(@D)/bin/python -r $<; \
	else $(BIN)/python -m venv $(@D) && $(@D)/bin/python -m pip install --quiet -r $<; fi
@touch $@
endef

.venv-peers/%/.synced: benchmarks/peers/%.txt | setup
	$(PINNED_ENVIRONMENT)

.venv-clients/.synced: tests/clients/requirements.txt | setup
	$(PINNED_ENVIRONMENT)

.PHONY: release
release: setup .venv-release/.synced ## Build wheel and sdist into dist/, check and smoke-test them, write the notes
	UV=$(abspath $(shell command -v $(UV))) TWINE=.venv-release/bin/twine $(BIN)/python -m scripts.release

.venv-release/.synced: pyproject.toml uv.lock | setup
	UV_PROJECT_ENVIRONMENT=$(@D) $(UV) sync --frozen --only-group release $(WITH)
	@touch $@

.PHONY: clean
clean: ## Remove .venv, caches and build output
	rm -rf .artifacts .venv .venv-docs .venv-clients .venv-peers .venv-release .uv .pytest_cache .ruff_cache .import_linter_cache .mypy_cache .hypothesis build dist site
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
