# The environment is made once and used by every target; a change of pyproject.toml brings it up to date.
# Hundreds of processes start during the tests, and each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-the-demo
COMPILED := $(VENV)/.compiled
CHECK_PYTHON = $(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or later is needed, {sys.executable} is {v.major}.{v.minor}: make PYTHON=python3.12 ...")'
# What is drawn in tests is drawn anew for each commit, and the same for everybody who tests that commit.
SEED ?= $(shell printf '%d' 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0))
# How many processes run the tests: auto is two for each processor, 0 is one without pytest-xdist.
JOBS ?= auto
# How much. CI (.ci/run) says SEEDS=4000 FAST=0, `make check` more; FAST=1 leaves the slow tests out.
SEEDS ?= 400
KILLS ?= 5
FAST ?= 1
MUTANTS ?= 120
# A test that fails gets as many more tries, three of the whole run at most, and is told of; CI says 1. What is drawn,
# and what runs without a clock or a socket, fails at once: chance is what finds its bugs, or has no part in it.
RERUNS ?= 0
ONE_TRY := tests/sim tests/crash tests/tables tests/api tests/authorization tests/tidy
TRIES := $(if $(filter-out 0,$(RERUNS)),--reruns $(RERUNS) --max-suite-reruns 3 --rerun-show-tracebacks $(ONE_TRY:%=--rerun-exclude-path %))

.PHONY: help env test check lint types contracts tests mutants docs site format demo conformance crash bench dist clean test-compiled

help:
	@echo "make demo         play the stories on a broker of its own and audit its files"
	@echo "make test         lint, types, import contracts, tests but the slow ones, 400 seeds of the simulation"
	@echo "make test-compiled  build the compiled engine, and run on it what does not replace its functions"
	@echo "make check        all tests, 100,000 seeds of the simulation, fifty kills, and make crash"
	@echo "make conformance  all that is compared with Apache Kafka, and fifty kills (needs Java 17 and Maven); writes docs/compatibility.md"
	@echo "make crash        every truncation, flipped bit, failing disk call and 20,000 crash states, of which the tests sample"
	@echo "make mutants      change one line at a time, 120 times, and tell which changes no test sees (hours)"
	@echo "make bench        the broker's and the scan's figures"
	@echo "make docs         write the pages that are made from code"
	@echo "make site         the readme and the pages of docs/ as a static site in build/site (installs Zensical)"
	@echo "make dist         the sdist, the plain wheel and their SBOM in build/dist (docs/release.md)"
	@echo "make format       let ruff rewrite what it can"
	@echo "make clean        remove the environment and the caches"

$(STAMP): pyproject.toml hatch_build.py ottla/protocol/record_walk.py
	@$(CHECK_PYTHON)
	@echo "making the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[spark,test]'
	@touch $(STAMP)

# The demo reads its log without Spark, and compiles nothing: it is there within a minute.
$(DEMO_STAMP): pyproject.toml
	@$(CHECK_PYTHON)
	@echo "making the environment of the demo in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@OTTLA_COMPILE=0 $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[audit]'
	@touch $(DEMO_STAMP)

env: $(STAMP)

# Side by side: the checks of the code, and what the tests need to begin.
test: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 2 lint types contracts $(COMPILED)
	@$(MAKE) --no-print-directory tests

check: lint types contracts crash
	$(MAKE) --no-print-directory tests FAST=0 KILLS=50 SEEDS=100000

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

# Once for all processes: each of them would compile the modules and the tests of a new checkout, and the kernels of an audit.
KERNELS := tests/audit/test_audit.py -k that_is_wrong_with_kafkas_directories
$(COMPILED): | $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet > $@.new || { cat $@.new; exit 1; }
	-@$(BIN)/python -m pytest --quiet -p no:cacheprovider $(KERNELS) > $@.new
	@mv $@.new $@

tests: $(STAMP) $(COMPILED)
	OTTLA_FAST=$(FAST) OTTLA_KILLS=$(KILLS) OTTLA_SEED=$(SEED) OTTLA_SEEDS=$(SEEDS) \
	  $(BIN)/python -m pytest -n $(JOBS) --hypothesis-seed=$(SEED) $(TRIES)

# The wheel with the compiled engine, unpacked beside copies of the tests: those that run a broker without test doubles.
OF_THE_FORM := $(addprefix tests/,api tables wire/broker wire/test_corpus_on_a_broker.py sim/test_seeds.py sim/test_forms.py \
  conformance/differential/test_differential.py)
test-compiled: $(STAMP) $(COMPILED)
	@rm -rf build/form build/wheels; mkdir -p build/form
	@reason="$$($(BIN)/python -c 'import hatch_build; print(hatch_build.lacks() or "")')"; \
	if [ -n "$$reason" ]; then echo "The compiled engine is not tested here: $$reason"; exit 0; fi; \
	set -e; \
	OTTLA_COMPILE=1 $(BIN)/python -m hatchling build -t wheel -d build/wheels; \
	$(BIN)/python -m zipfile -e build/wheels/*.whl build/form; \
	cp -R $(filter-out ottla pyspark_ottla.py build dist ottla-data spark-warehouse metastore_db,$(wildcard *)) build/form/; \
	cd build/form; export PYTHONPATH="$$PWD"; \
	$(abspath $(BIN))/python -m ottla --version | grep 'compiled engine'; \
	OTTLA_SEEDS=400 $(abspath $(BIN))/python -m pytest -n $(JOBS) --hypothesis-seed=$(SEED) $(TRIES) $(OF_THE_FORM)

mutants: $(STAMP)
	$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m lab.protocol_support > docs/protocol-support.md.new
	mv docs/protocol-support.md.new docs/protocol-support.md
	$(BIN)/python -m lab.options_page > docs/options.md.new
	mv docs/options.md.new docs/options.md
	$(BIN)/python -m lab.metrics_page > docs/metrics.md.new
	mv docs/metrics.md.new docs/metrics.md

# The pages need nothing of Ottla: the smaller environment is enough.
site: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	@$(BIN)/python -c 'import zensical' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	$(BIN)/python -m lab.site_pages build
	$(BIN)/zensical build --strict --config-file build/zensical.toml
	@echo "build/site/index.html (the search needs a server: $(PYTHON) -m http.server --directory build/site)"

# The wheel is installed into an environment of its own, which shows that it needs nothing else, and whose list is the SBOM.
dist:
	@$(CHECK_PYTHON)
	rm -rf build/dist build/tools build/bare
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check build cyclonedx-bom
	OTTLA_COMPILE=0 build/tools/bin/python -m build --outdir build/dist
	$(PYTHON) -m venv build/bare
	build/bare/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.whl
	build/tools/bin/cyclonedx-py environment --output-reproducible --output-file build/dist/sbom.cdx.json build/bare/bin/python
	build/bare/bin/ottla --version

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	@$(BIN)/ottla demo

conformance: $(STAMP)
	@command -v java >/dev/null || { echo "make conformance needs Java 17: no java on the path"; exit 1; }
	@command -v mvn >/dev/null || { echo "make conformance needs Maven, which fetches Apache Kafka: no mvn on the path"; exit 1; }
	@$(BIN)/python -c 'import deltalake, grpc_status, moto, pandas, zensical' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[conformance,site]'
	@mkdir -p build
	OTTLA_CONFORMANCE=1 $(BIN)/python -m pytest --junitxml=build/conformance.xml tests/conformance tests/crash tests/wire tests/scan tests/audit tests/spark tests/unit/benchmarks tests/unit/test_site.py tests/unit/test_distributions.py; status=$$?; \
	  $(BIN)/python -m lab.compatibility_page build/conformance.xml > build/compatibility.md \
	  && mv build/compatibility.md docs/compatibility.md; exit $$status

crash: $(STAMP)
	$(BIN)/python -m lab.crash damage --jobs 2
	$(BIN)/python -m lab.crash failures --jobs 2
	$(BIN)/python -m lab.crash states --jobs 2

bench: $(STAMP)
	$(BIN)/python benchmarks/broker.py
	$(BIN)/python benchmarks/transactions.py
	$(BIN)/python benchmarks/storage.py
	$(BIN)/python benchmarks/flush.py
	$(BIN)/python benchmarks/scan.py
	$(BIN)/python benchmarks/first_answer.py --only 'ottla audit'

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
