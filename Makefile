# Works with GNU make 3.81 and later. Every target sets up what it needs, once, in .venv.
#
#   PYTHON=python3.12   the interpreter that makes .venv (3.11 or newer)
#   TORCH_INDEX=URL     one more wheel index, for another build of torch than PyPI's;
#                       https://download.pytorch.org/whl/cpu has the small one without CUDA
#
# Both are read when .venv is made; `make clean` first to change them.

comma := ,
space := $(subst ,, )

PYTHON ?= python3
TORCH_INDEX ?=

LOCK := requirements.lock
EXTRAS := all,docs,dev
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

.PHONY: help demo docs notebooks test test-all test-processors browser-test check format lock clean gpu

help:
	@echo "make demo      train a small model, translate with it, draw its attention"
	@echo "make test      make check, then the quick tests: about five minutes"
	@echo "make test-all  make check, then every test without a GPU or a browser: under twenty"
	@echo "make test-processors  the quick tests as on other processors and beside other work: hours"
	@echo "make browser-test  the page of seq2seq serve in Chromium, which must be installed"
	@echo "make check     formatting, lint, types and import contracts; changes nothing"
	@echo "make docs      the documentation site in build/site, with every link checked"
	@echo "make notebooks execute the tutorials, which takes some minutes, and keep their outputs"
	@echo "make format    fix formatting and what lint can fix by itself"
	@echo "make lock      resolve all dependencies again and write $(LOCK)"
	@echo "make gpu       on a machine with CUDA: its tests, its benchmark, a Multi30k training"
	@echo "make clean     remove .venv and all caches; data and runs stay"
	@echo
	@echo "The first call installs everything into .venv. Options on the same line:"
	@echo "  PYTHON=python3.12  which Python to use (3.11 or newer)"
	@echo "  TORCH_INDEX=https://download.pytorch.org/whl/cpu"
	@echo "                     torch for the CPU alone: a far smaller download on Linux"

demo: $(READY)
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/seq2seq demo --overwrite

# Both tiers leave out what needs a machine of its own; `thorough` is what only test-all runs.
ELSEWHERE := not browser and not gpu and not load
# Its header names torch, its threads and the instruction set of the processor.
PYTEST := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist worksteal

test: check
	@$(PYTEST) -m 'not thorough and $(ELSEWHERE)'

test-all: check
	@$(PYTEST) -m '$(ELSEWHERE)'

# One variant: .venv/bin/python scripts/check_processors.py --variant avx2 tests/model
test-processors: $(READY)
	@$(BIN)/python scripts/check_processors.py

# playwright is not one of the extras above: few need its 45 MB.
browser-test: $(READY)
	@$(PIP_INSTALL) --constraint $(LOCK) --editable '.[browser]'
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -rs -m browser tests/tools/serving

check: $(READY)
	@$(BIN)/ruff format --quiet --check --output-format concise . || \
	  { echo "formatting differs: run make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/mypy
	@$(BIN)/lint-imports > $(VENV)/import-contracts.log || { cat $(VENV)/import-contracts.log; exit 1; }

docs: $(READY)
	@$(BIN)/python scripts/build_docs.py

notebooks: $(READY)
	@$(BIN)/python scripts/run_notebooks.py

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# torch is held at the release whose CPU wheel the project is tested with, and named without `+cpu`,
# which PyPI does not have. The lock must do for every Python 3.11: pymdown-extensions 13 needs 3.11.5.
# The extra `all` names the project itself, which pip-compile then lists by its folder.
lock:
	@"$(PYTHON)" -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install -qq --disable-pip-version-check pip-tools
	@printf '%s\n' 'torch==2.13.0' 'pymdown-extensions<13' > $(VENV)-lock/held.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(VENV)-lock/bin/pip-compile --quiet --strip-extras --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  $(foreach extra,$(subst $(comma),$(space),$(EXTRAS)) browser,--extra $(extra)) \
	  --constraint $(VENV)-lock/held.txt --output-file $(LOCK) pyproject.toml
	@sed 's/+cpu$$//; /^seq2seq-attention /d' $(LOCK) > $(VENV)-lock/released.txt && cp $(VENV)-lock/released.txt $(LOCK)
	@rm -rf $(VENV)-lock

gpu: $(READY)
	@$(BIN)/python -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || \
	  { echo "torch sees no CUDA device: check nvidia-smi and the torch build in .venv" >&2; exit 1; }
	@$(BIN)/python -m pytest -m gpu -rs
	@$(BIN)/python scripts/benchmark_gpu.py --json runs/gpu.json
	@$(BIN)/seq2seq download multi30k
	@$(BIN)/seq2seq train configs/multi30k-en-de-luong.yaml run_dir=runs/multi30k-cuda --device cuda --overwrite
	@$(BIN)/seq2seq evaluate -m runs/multi30k-cuda --lowercase --device cuda

clean:
	@rm -rf $(VENV) $(VENV)-lock .cache build dist seq2seq_attention.egg-info
	@rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find seq2seq scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml $(LOCK)
	@command -v "$(PYTHON)" >/dev/null || \
	  { echo "$(PYTHON) not found: install Python 3.11 or newer, or name one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11: name a newer one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make a virtual environment: apt-get install $(notdir $(PYTHON))-venv" >&2; exit 1; }
	@echo "Setting up $(VENV). First PyTorch:"
ifeq ($(TORCH_INDEX),)
	@test "$$(uname)" != Linux -o -e $(VENV) || \
	  echo "With CUDA it downloads some 3 GB. Without an NVIDIA GPU, stop this and take the one of 200 MB:" \
	  "make $(MAKECMDGOALS) TORCH_INDEX=https://download.pytorch.org/whl/cpu"
endif
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on \
	  $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)") --constraint $(LOCK) torch
	@echo "Then some 100 smaller packages, which takes a minute or two ..."
	@$(PIP_INSTALL) --constraint $(LOCK) --editable '.[$(EXTRAS)]'
	@touch $(READY)
	@echo "$(VENV) is ready. For seq2seq in a terminal: source $(BIN)/activate"
