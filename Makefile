# `make demo` and `make test` are the two to know; `make help` lists the others.
PYTHON ?= python3
PORT ?= 5000
# More than the two cores of a small machine: most tests wait for servers to start and for tokens.
TEST_PROCESSES ?= 3
# ENGINE and MODEL reach their commands through the environment, so that the shell does not interpret a signed URL's `&`.
export ENGINE MODEL
run := .venv/bin/python -m

.PHONY: help demo serve test image test-images test-vllm test-docs test-hosts test-security acceptance bench soak fuzz fuzz-prune test-bridge bridge-coverage lint fix docs vllm-arguments vllm-pin lock setup setup-dev clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /|/' | column -t -s '|'

demo: setup ## Build an engine from a model, serve it, stream an answer (MODEL=<folder or name on the hub> for another model)
	@$(run) demo $(if $(MODEL),--model "$$MODEL")

serve: setup ## Serve ENGINE=<path or URL of an engine.tar> on PORT (5000)
	@.venv/bin/cog-triton serve $(if $(ENGINE),"$$ENGINE",$(error name the engine: make serve ENGINE=engine.tar)) --port '$(PORT)'

test: setup-dev lint ## Lint, types, unit and integration tests (COVERAGE=1 counts the lines they run)
	$(run) pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --all-errors-met $(if $(COVERAGE),--cov)

image: setup-dev ## Build IMAGE (cog-triton-runner-cpu), load it into podman and check it there
	@ci/check-image $(or $(IMAGE),cog-triton-runner-cpu)

test-images: setup-dev ## Test the images: in containers, in a registry, on two toolchains (needs root)
	$(run) pytest tests/images --timeout 1800
	$(run) pytest tests/day_one -m containers --timeout 1800

test-docs: setup-dev ## Run the commands of the README and the docs (see tests/docs/pages.py; needs root), test deploy/, and try the page in a browser
	@ci/install-image-tools
	$(run) pytest tests/docs tests/deploy tests/page --timeout 1800

test-vllm: setup-dev ## Test the vLLM engine with the real vLLM, on the CPU (fetches 0.7 GB the first time)
	@$(PYTHON) ci/setup.py --vllm
	$(run) pytest tests/vllm tests/hosts/test_vllm.py --timeout 600

test-hosts: setup-dev ## Test a TensorRT-LLM engine on two hosts: the real Open MPI over network namespaces (needs root)
	@ci/install-host-tools
	$(run) pytest tests/hosts/test_ranks.py tests/hosts/test_serving.py

test-security: setup-dev ## Attack a real runner in every known way, also as user nobody (needs root); FULL=1: 20 attackers at once, for DURATION (300) seconds
	$(run) $(if $(FULL),tests.security.crowd --seconds $(or $(DURATION),300),pytest tests/security $(if $(ONLY),-k '$(ONLY)'))

test-bridge: setup-dev ## Test the bridge under GCC's sanitizers, between hostile engines and clients (needs gcc)
	$(run) pytest tests/bridge

bridge-coverage: setup-dev ## Print a table of the bridge's lines and branches that its tests run (needs gcc)
	@$(run) tests.bridge.coverage

acceptance: setup ## Compare the real TensorRT-LLM or vLLM with what was assumed of it (needs a GPU; MODEL=<folder, name on the hub, config>)
	@.venv/bin/cog-triton acceptance $(if $(MODEL),"$$MODEL") --report acceptance.md

bench: setup-dev ## Measure the speed figures that need no GPU, as ratios where possible (ROWS="serving scaling" for some; needs root)
	@ci/install-image-tools
	@$(PYTHON) ci/setup.py --vllm
	$(run) tests.performance.bench $(ROWS)

soak: setup-dev ## Load a runner for DURATION (600) seconds with faults; nothing may be lost
	$(run) tests.performance.soak --seconds $(or $(DURATION),600)

fuzz: setup-dev ## Run the property tests with many more examples, and 20,000 bodies over HTTP
	HYPOTHESIS_PROFILE=fuzz $(run) pytest tests/unit tests/integration/test_fuzz.py -m hypothesis --timeout 3600

fuzz-prune: setup-dev ## Give 5,000 corrupt libraries to the pruner of device code
	PRUNE_FUZZ_CASES=5000 $(run) pytest tests/unit/prune/test_fuzz.py

lint: setup-dev ## Check format, lint and types; changes nothing
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy

fix: setup-dev ## Format, and fix what the linter can
	.venv/bin/ruff check --fix --exit-zero --quiet .
	.venv/bin/ruff format .

docs: setup-dev ## Write the generated files: errors.md, config.md, environment.md, tensorrt_llm.md, the schemas, the bridge's constants.h
	$(run) tools.docs

vllm-arguments: setup-dev ## Rewrite shared/vllm_arguments.json from the locked wheel (fetches 0.3 GB), and print what has changed
	@$(run) tools.vllm_arguments

vllm-pin: setup-dev ## Move vLLM to VERSION and lock it (NEXT=1: in the images named -next); print what changes in arguments, defaults and interface
	@$(run) tools.vllm_pin $(VERSION) $(if $(NEXT),--next)

lock: setup-dev ## Rewrite requirements/ and nix/locks; fills in unknown hashes (UPGRADE=1 takes newer versions)
	@ci/lock $(if $(UPGRADE),--upgrade)

setup: ## Make the environments (the others do so as needed)
	@$(PYTHON) ci/setup.py

setup-dev:
	@$(PYTHON) ci/setup.py --dev

clean: ## Remove the environments and everything built
	rm -rf .venv .build result
