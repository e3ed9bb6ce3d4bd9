# The first two commands: `make run` opens the chat window, `make test` runs every check and test. Both set up what they
# need, once. `make help` lists the rest.
SHELL := /bin/sh
PY := .venv/bin/python
# In .venv, so that they go when it goes.
READY_TO_RUN := .venv/ready-to-run
READY_TO_TEST := .venv/ready-to-test
BOOT := @sh tools/with_python.sh
SMOLLM2 := build/models/SmolLM2-135M-Instruct.Q4_1.gguf
SOURCES := pyproject.toml setup.py $(wildcard tools/*.py cext/*.pyx cext/*.pxd cext/src/*.cpp cext/src/*.h)
ARGS ?=

.PHONY: run test build lint models bench crash soak sanitize screenshots clean help
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

run: $(READY_TO_RUN) $(SMOLLM2) ## open the chat window (ARGS="path/to/model.gguf" to start with another model)
	@exec $(PY) -m app $(ARGS)

test: $(READY_TO_TEST) models lint ## every check and every test
	@CAUSERIE_SOAK_S=60 $(PY) -m pytest -rs $(ARGS)

build: $(READY_TO_RUN) ## set up and compile, start nothing

lint: $(READY_TO_TEST) ## style, formatting, types and import rules
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo

models: $(READY_TO_TEST) ## fetch the models of the tests; without a network the tests that need them are skipped
	@$(PY) tools/fetch_models.py test || true

bench: $(READY_TO_RUN) $(SMOLLM2) ## tokens a second of the default model
	@$(PY) -m engine bench $(SMOLLM2) $(ARGS)

soak: $(READY_TO_TEST) ## ten minutes of random operations on every kind of memory
	@CAUSERIE_SOAK_S=600 $(PY) -m pytest tests/soak $(ARGS)

crash: $(READY_TO_TEST) ## kill the store and the session writer 1,000 times, the whole program 100 times
	@$(PY) -m tests.crash.rounds 1000 100

sanitize: $(READY_TO_TEST) ## the tests of the compiled core under the address and undefined-behaviour sanitizers
	@$(PY) tools/sanitize.py $(ARGS)

screenshots: $(READY_TO_TEST) ## pictures of every window in both themes, into docs/screenshots
	@$(PY) -m tests.screenshots docs/screenshots

clean: ## remove all that was built, but keep the models that were fetched
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	@rm -rf build/cython build/lib.* build/temp.* build/sanitize build/screenshots cext/*.so

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

$(READY_TO_RUN): $(SOURCES)
	$(BOOT) tools/set_up.py run
	@touch $@

$(READY_TO_TEST): $(SOURCES)
	$(BOOT) tools/set_up.py test
	@touch $@ $(READY_TO_RUN)

# A model that cannot be fetched does not stop the program: the window opens and says that it has none.
$(SMOLLM2): | $(READY_TO_RUN)
	@$(PY) tools/fetch_models.py default || true
