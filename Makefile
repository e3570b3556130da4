# Each target sets up what it needs by itself; `make demo` and `make test` are all that a newcomer has to know.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3.14 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
# The one that comes with Python 3.11 takes twice as long for the same packages; and it compiles them one by one.
PIP := pip==26.3 --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13
# Of the tests. They wait for processes and time limits, so that four keep two cores busy; each needs 15 seconds of
# processor time before its first test.
WORKERS ?= 4

.PHONY: help setup demo test lint bench chaos fuzz release-scene mutants docs constraints dist manifests ways lives clean

help:
	@echo 'make demo     see it work: 1000 Jobs through three teams'"'"' quotas, in a sandbox (TRACE=file.csv for a real trace, SCENE=clusters, KEEP=1 to look around)'
	@echo 'make test     run the tests, as CI does (ALL=1: also those that it leaves out)   make lint   ruff, mypy, import-linter'
	@echo 'make bench    print the measurements make setup  only install, into .venv'
	@echo 'make chaos    10,000 Jobs while processes, database, connections and clocks fail; half an hour (ARGS="--jobs 1000", or "--kinds 100")'
	@echo 'make fuzz     users who write whatever comes to mind against the whole; ten minutes (ARGS="--minutes 60 --seed 4")'
	@echo 'make ways     every way around the queue, for every kind; four minutes'
	@echo 'make lives    the sandbox'"'"'s operators beside recordings of the real ones: each difference, with its reason'
	@echo 'make release-scene  a release from its installation to its end, under load, with the processes of its pods (ARGS="--rounds 20")'
	@echo 'make docs     the documentation as a static site, in dist/site'
	@echo 'make mutants  break the engine in small ways and see whether a test notices'

$(INSTALLED): constraints.txt pyproject.toml
	@echo 'Setting up .venv (once, about a minute) ...'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sluice needs Python 3.11 or newer; this is " + sys.version)'
	@test "$$($(BIN)/python -c 'import pip, ssl, sys; print(sys.base_prefix)' 2>/dev/null)" = \
		"$$($(PYTHON) -c 'import sys; print(sys.base_prefix)')" || $(PYTHON) -m venv --clear .venv
	@echo '$(PIP)' | $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-compile -r constraints.txt
	@$(BIN)/python -m compileall -q -q -j 0 .venv/lib || true
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(INSTALLED)

demo: $(INSTALLED)
	@$(BIN)/sluice demo $(if $(TRACE),--trace '$(TRACE)') $(if $(SCENE),--scene '$(SCENE)') $(if $(KEEP),--keep)

# Bytecode is kept, also where the environment says otherwise: each worker and each process of Sluice would compile all
# modules again, for longer than most tests take. ALL=1 also runs the tests marked `long`, most of them scenes of the
# whole product, and all that are `costly`; the longest have a target of their own, as well (fuzz, ways, chaos,
# release-scene).
test: export PYTHONDONTWRITEBYTECODE :=
test: $(INSTALLED)
	@sh tests/install-tools.sh
	@$(BIN)/python -m compileall -q -j 0 admission webhooks alembic
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 20 \
		$(if $(ALL),,-m 'not long') $(ARGS)

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: $(INSTALLED)
	@$(BIN)/python -m tests.benchmarks $(ARGS)

# Prints its seed; ARGS='--seed N' has the same storm again. docs/chaos.md
chaos: $(INSTALLED)
	@$(BIN)/python -m tests.chaos $(ARGS)

# Prints its seed; ARGS='--seed N' has the same games again. CONTRIBUTING.md
fuzz: $(INSTALLED)
	@$(BIN)/python -m tests.fuzz $(ARGS)

# ARGS='--kinds Ray --ways 8,13 --verbose' for some; ARGS=--write writes the table of docs/kinds/tests.md anew.
ways: $(INSTALLED)
	@$(BIN)/python -m tests.ways $(ARGS)

# Needs the recordings (shared/apiserver/lives/operators) beside the repository.
lives: $(INSTALLED)
	@$(BIN)/python -m pytest -q -s -p no:cacheprovider tests/sandbox/test_lives_of_operators.py $(ARGS)

# As root. ARGS='--before REVISION' upgrades from that one to this one. CONTRIBUTING.md
release-scene: $(INSTALLED)
	@sh tests/install-tools.sh
	@$(BIN)/python -m tests.deploy $(ARGS)

# An hour on a busy machine; ARGS="'tree.*'" for a part. CONTRIBUTING.md
mutants: $(INSTALLED)
	@$(BIN)/python -c 'import mutmut' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	@nice -n 19 $(BIN)/python -m tests.mutation $(ARGS)

# The documentation as a static site, in dist/site.
docs: $(INSTALLED)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo 'dist/site/index.html'

# After a change of the dependencies in pyproject.toml. Names, versions and hashes only.
constraints: $(INSTALLED)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
		--extra otel --group pyproject.toml:dev pyproject.toml -o constraints.txt
	$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-emit-index-url --no-annotate \
		--constraint constraints.txt --extra otel pyproject.toml -o deploy/image/requirements.txt

# Wheel, sdist, chart and site, in dist/; the same sources give the same files.
dist: $(INSTALLED)
	@$(BIN)/python deploy/dist.py --site

# After a change in deploy/ or of kinds and settings: the chart's generated files, and kustomize's bases from the chart.
manifests: $(INSTALLED)
	@$(BIN)/python deploy/generate.py

clean:
	rm -rf .venv dist
