# One environment, made from the lock; nothing else to set up. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements.lock

export JUPYTER_PLATFORM_DIRS := 1
# Images of containers set it. Each of the thousands of processes that tests start would compile
# labkit anew, and pytest every test file in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

# Only what is said on this command line counts, not variables of the shell: OUT and GPU are names
# that many things have.
said = $(if $(filter command,$(origin $1)),$($1))

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The script says what it does, and does nothing where all is up to date. It is asked each time, as
# PYTHON= and CPU= may be new, or the Python that made the environment gone.
$(STAMP): $(LOCK) pyproject.toml FORCE
	@PYTHON="$(if $(filter-out file,$(origin PYTHON)),$(PYTHON))" CPU="$(call said,CPU)" GOAL="$(firstword $(MAKECMDGOALS))" .ci/setup

setup: $(STAMP)  ## make or update the environment (the others call it); CPU=1: without CUDA's libraries

lab: $(STAMP)  ## open your copy of the course (work/) in JupyterLab
	@$(BIN)/labkit lab

# Four pieces of work at a time (tests/support/schedule.py): most of them wait for processes rather
# than compute. A test that hangs fails after 20 minutes, with the stacks of all its threads, and the
# others go on.
WORKERS := -n 4 --timeout 1200 --dist loadfile -p tests.support.schedule -p tests.support.share -p tests.support.quarantine \
  -p tests.support.stacks

test: $(if $(filter true,$(CI)),system-deps) $(STAMP) lint  ## run every check and notebook, and a share of what takes long
	@paths=$$($(BIN)/python -m tests.support.parts $(call said,PART)) || exit 2; \
	$(BIN)/python -m pytest $(WORKERS) -p tests.support.warm_start $$paths

test-all: export SHARE := all
test-all: test  ## run everything: each night, and before a release; PART=answers: one part

test-fast: $(STAMP)  ## run the quick tests only, which start no rank and no kernel
	$(BIN)/python -m pytest tests/unit -n 2 --dist worksteal
	@echo "test-fast has not run: the linters, notebooks, and all tests that start ranks, kernels or servers (make test)"

# Runs the programs of the tables and the answers on ranks, and keeps what was judged: see
# tests/support/situations.py and results.py. Judged again by every run of the tests.
record: $(STAMP)  ## record the programs and answers that unit tests judge (some 15 minutes)
	$(BIN)/python -m tests.support.situations
	$(BIN)/python -m tests.support.results

test-with:  ## run tests with other versions: WITH="torch==2.11.0" PYTHON=python3.13 TESTS=tests/ranks
	@PYTHON="$(PYTHON)" .ci/test-with $(WITH) $(if $(TESTS),-- $(TESTS))

GPU_FLAGS = $(if $(call said,OUT),--out "$(OUT)") $(if $(filter 0,$(call said,GPU)),--no-gpu) \
  $(if $(call said,AGAINST),--against "$(AGAINST)") $(call said,ARGS)
test-gpu: $(if $(call said,WHEELS),,$(STAMP))  ## run all that needs a GPU, 8 minutes at most; GPU=0: try it on the CPU
	@$(if $(call said,WHEELS),$(PYTHON) -m tests.gpu.run.prepare "$(WHEELS)",$(BIN)/python -m tests.gpu.run) $(GPU_FLAGS)

wheels: $(STAMP)  ## fetch what test-gpu needs where there is no network: THERE=file NCCL=1
	@$(BIN)/python -m tests.gpu.wheels "$(or $(call said,WHEELS),build/wheels)" $(if $(call said,THERE),--there "$(THERE)") $(if $(call said,NCCL),--nccl) $(call said,ARGS)

bench: $(STAMP)  ## measure what docs/BENCHMARKS.md reports, JSON in bench.json; then bench-peers
	$(BIN)/python -m tests.bench; own=$$?; $(BIN)/python -m tests.bench.peers && exit $$own

# Installs the peers below build/, beside requirements.lock: none of them is needed for anything else.
bench-peers: $(STAMP)  ## measure labkit beside torchrun, Ray and others, JSON and figure in build/bench-peers: ARGS=...
	$(BIN)/python -m tests.bench.peers $(call said,ARGS)

# Always from nothing: a page that has been renamed leaves nothing behind.
site: $(STAMP)  ## build the course's pages from the stored outputs into build/site
	@rm -rf build/site
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto \
	  --builder html --doctree-dir build/site-trees --conf-dir .site . build/site
	@echo "build/site/index.html"

# Inside the site, tests/project/test_site.py looks at every link; this asks the rest of the world.
site-links: $(STAMP)  ## ask whether the pages that the course links to are still there
	@$(BIN)/sphinx-build --quiet --keep-going --builder linkcheck \
	  --doctree-dir build/site-trees --conf-dir .site . build/site-links

lint: $(STAMP)  ## ruff over code and notebooks (%%px cells too), mypy over labkit, its walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/nbqa ruff notebooks --nbqa-process-cells px,torchrun --config tests/ruff_notebooks.toml
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: $(STAMP)  ## resolve pyproject.toml again into requirements.lock and environment.yml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --extra course --group dev --group site --custom-compile-command "make lock" \
	  --output-file $(LOCK) pyproject.toml
	$(BIN)/python -m tests.support.conda_versions --write

# What some tests need beyond Python: the packages of tests/support/system.py. Debian only, as root;
# elsewhere those tests are skipped. Nothing is asked of the network if all of it is there.
# Some of it are servers (sshd). Tests start their own: Debian's must not run on this machine, now
# (it asks POLICY, 101 is no; one that is there already is left to decide) or after a restart.
POLICY := /usr/sbin/policy-rc.d
SYSTEM_PACKAGES := chromium fonts-dejavu-core fonts-liberation iproute2 openssh-server openssh-client openmpi-bin gdb slurmctld slurmd slurm-client munge
system-deps:  ## install what some tests need beyond Python (Debian, root)
	@missing=; for package in $(SYSTEM_PACKAGES); do \
	  status=$$(dpkg-query --show --showformat '$${db:Status-Status}' $$package 2>/dev/null); \
	  [ "$$status" = installed ] || missing="$$missing $$package"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	command -v apt-get >/dev/null || { echo "make: system-deps is for Debian (there is no apt-get here); missing:$$missing" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "make: system-deps needs root to install$$missing" >&2; exit 1; }; \
	echo "system-deps: installing$$missing"; \
	if [ ! -e $(POLICY) ]; then \
	  trap 'rm -f $(POLICY)' EXIT; trap 'exit 1' HUP INT TERM; \
	  printf '#!/bin/sh\nexit 101\n' > $(POLICY) && chmod 755 $(POLICY) || exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get -qq -o Acquire::Retries=3 update && \
	apt-get -qq -o Acquire::Retries=3 install --yes --no-install-recommends $$missing >/dev/null || exit 1; \
	command -v systemctl >/dev/null || exit 0; \
	for file in $$(dpkg-query --listfiles $$missing); do \
	  case $$file in */systemd/system/*.service|*/systemd/system/*.socket) \
	    systemctl --quiet disable $${file##*/} 2>/dev/null || true;; esac; \
	done

clean:  ## remove the environment and every cache (not work/)
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache bench.json
	find . -name __pycache__ -prune -exec rm -rf {} +

FORCE:

.PHONY: FORCE help setup lab test test-all test-fast record test-with test-gpu wheels bench bench-peers site site-links lint lock system-deps clean
