# `make help` lists the targets. Everything happens in .venv and .cache.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
DURATION ?= 60
ARGS ?=
# Half of the time a test waits: for programs, intervals, sockets.
JOBS ?= $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 2))))
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/light
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## Make .venv with jaxmon and all that development needs.

define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "$(PYTHON) is older than 3.11; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
@$(PYTHON) -m venv $(VENV) || \
  { echo "cannot make $(VENV); on Debian: apt-get install python3-venv" >&2; exit 1; }
@$(PIP) install --quiet --no-compile -c constraints.txt --upgrade 'pip>=25.1' uv
endef

# uv takes a tenth of pip's time. Where it fails, pip tries: networks fail at times, and uv
# does not read pip's configuration, such as the address of an index.
comma := ,
define install
{ $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1) || \
  $(PIP) install --quiet --no-compile -c constraints.txt $(1); }
endef

# What `run` needs: half of what development does.
$(LIGHT): pyproject.toml constraints.txt
	$(environment)
	@echo "installing jaxmon and JAX into $(VENV) ..."
	@$(call install,-e '.[demo]')
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(environment)
	@echo "installing jaxmon, JAX and the development tools into $(VENV) ..."
	@$(call install,--upgrade --target $(VENV)/schemas --group schemas) & schemas=$$!; \
	  $(call install,-e '.[dashboards$(comma)demo$(comma)nvidia]' --group dev); \
	  wait $$schemas
	@# A test compares its figures with ours; of its dependencies, it needs none for that.
	@$(call install,--no-deps ml-goodput-measurement)
	@touch $(LIGHT) $@

.PHONY: run
run: $(LIGHT) ## Run the demo: training and serving on JAX, observed (DURATION=60 seconds).
	$(BIN)/jaxmon demo --duration $(DURATION)

# Packages load from the network while the environment does, and while lint and the
# collection have a processor each. Lint goes on beside the tests; what it finds comes
# last. Tests are collected once before the workers do, which would all compile the same
# modules. A worker that crashes ends them: pytest-xdist may wait for ever for the next.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: ## Run lint and the tests of each change (ARGS for pytest, JOBS in parallel).
	@mkdir -p .cache; log=.cache/lint.log; failed=; \
	  $(MAKE) --no-print-directory packages & packages=$$!; \
	  lint=; trap 'kill $$packages $$lint 2>/dev/null || :' EXIT; \
	  $(MAKE) --no-print-directory setup; \
	  $(MAKE) --no-print-directory lint >$$log 2>&1 & lint=$$!; \
	  if ! collected=$$($(BIN)/pytest --collect-only -q $(ARGS) 2>&1); then \
	    tail -n 60 <<<"$$collected"; failed+=" collection"; \
	  fi; \
	  wait $$packages || failed+=" packages"; packages=; \
	  if [ -z "$$failed" ]; then \
	    $(BIN)/pytest -n $(JOBS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder \
	      $(ARGS) || failed+=" tests"; \
	  fi; \
	  wait $$lint || failed+=" lint"; lint=; \
	  cat $$log; \
	  if [ "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

.PHONY: test-all
test-all: ## Run lint and all tests, also those that take too long for each change.
	@$(MAKE) --no-print-directory test ARGS='-m "" $(ARGS)'

.PHONY: packages
packages: ## Install the programs that some tests need, when root on Debian.
	@tools/system-packages
	@tools/otlp-receiver
	@tools/accessibility/install

.PHONY: lint
lint: $(READY) ## Check style, types, import rules, generated files.
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate --check
	$(BIN)/python tools/check_tree.py
	$(BIN)/python tools/check_door.py

.PHONY: format
format: $(READY) ## Bring the code into shape.
	$(BIN)/ruff format --quiet
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: pins
pins: $(READY) ## Write the digests of what the sidecar's image installs.
	cd exporters/docker && for one in requirements build-requirements; do \
	  UV_CUSTOM_COMPILE_COMMAND="make pins" ../../$(BIN)/uv pip compile --quiet --upgrade \
	    --no-deps --no-annotate --generate-hashes --python-version 3.11 \
	    --constraints ../../constraints.txt $$one.in --output-file $$one.txt; \
	done

.PHONY: generate
generate: $(READY) ## Write the generated files.
	$(BIN)/python -m tools.generate

.PHONY: bench
bench: $(READY) ## Measure what jaxmon costs, side by side with alternatives.
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: soak
soak: $(READY) ## Run a program for long under jaxmon; nothing may grow (ARGS="--calls 1000").
	$(BIN)/python tools/soak.py $(ARGS)

.PHONY: fleet
fleet: $(READY) ## Measure what rules cost on a fleet (ARGS="rules --processes 100 --hours 73").
	$(BIN)/python -m tools.fleet $(ARGS)

.PHONY: preview
preview: $(READY) ## Draw the dashboards as Grafana would (ARGS="--prometheus URL --board oncall").
	$(BIN)/python -m tools.preview $(ARGS)

.PHONY: exam
exam: $(READY) ## Judge programs with a planted fault, and healthy ones (ARGS="NAME...").
	$(BIN)/python -m tests.exam $(ARGS)

.PHONY: faults
faults: $(READY) ## Break what the sidecar watches, and print what it said (ARGS="--only GPU").
	$(BIN)/python tools/fault_matrix.py $(ARGS)

.PHONY: compat
compat: $(READY) ## Run the ground-truth tests on every supported JAX (ARGS="0.6.2" for one).
	$(BIN)/python tools/compat.py $(ARGS)

.PHONY: third-party
third-party: $(READY) ## Compare another project's tests with and without jaxmon (ARGS="optax").
	$(BIN)/python tools/third_party.py $(ARGS)

.PHONY: build
build: $(READY) ## Build wheel and source distribution into dist/.
	rm -rf dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build

.PHONY: smoke
smoke: build ## Install the wheel into a fresh environment and try it.
	rm -rf .cache/smoke
	$(PYTHON) -m venv .cache/smoke
	.cache/smoke/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd .cache/smoke && bin/jaxmon --help && bin/jaxmon --version && \
	  bin/jaxmon runbook list && bin/jaxmon alerts check && \
	  bin/python -I -c 'import jaxmon, jaxmon_alerts, jaxmon_dashboards, jaxmon_exporter; print("imports", jaxmon.__version__)'

.PHONY: clean
clean: ## Remove everything that the other targets made.
	rm -rf $(VENV) .cache dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
