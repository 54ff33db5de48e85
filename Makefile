# make build   the package in .venv and the default kernels, verified without a GPU
# make test    all tests that need no GPU, linters and types
# make gpu     tests and measurements on this machine's GPU
# make wheel   wheel and source distribution in dist/
# make clean   everything that was built; .venv stays

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PYTEST ?= -n auto

BIN := $(VENV)/bin
comma := ,
# Without an nvcc on this machine the compiler comes as Python packages.
NVCC := $(shell command -v nvcc || ls "$$CUDA_HOME/bin/nvcc" "$$CUDA_PATH/bin/nvcc" 2>/dev/null | head -n 1)
EXTRAS := test,inspect$(if $(NVCC),,$(comma)cuda)

.PHONY: build test lint gpu wheel clean

build: $(VENV)/installed
	$(BIN)/marlin-gen build

test: $(VENV)/installed lint
	$(BIN)/python -m pytest $(PYTEST) -m "not gpu"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/mypy

gpu: $(VENV)/installed
	PYTHON=$(BIN)/python tests/gpu/run.sh

wheel: $(VENV)/installed
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf dist .pytest_cache .mypy_cache .ruff_cache
	find generated -mindepth 1 -not -name README.md -delete

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	touch $@
