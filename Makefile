.PHONY: install check test full soak sanitize gpu ray image format stubs fixtures

install:  ## everything that contributing needs
	pip install --no-compile -c constraints.txt -e ".[dev]"

check:  ## lint, types and import rules
	ruff check . && ruff format --check . && mypy && lint-imports

test:  ## the fast tier: unit tests, stubs, and tests with real servers
	pytest -n 2 --dist loadfile

full:  ## longer suites: every checkpoint family, whole validation sets
	pytest -m full

soak:  ## minutes of load; TRIPTYCH_SOAK_SECONDS and TRIPTYCH_STORM_SECONDS set how many
	pytest -m soak

sanitize:  ## the tests of the C++ kernels, compiled with GCC's sanitizers, at every level of instructions: some twenty minutes
	python -m tests.sanitize

gpu:  ## the suite for a CUDA device, which is skipped where there is none; `python -m tests.gpu.kit` adds the benchmarks
	pytest -m gpu tests/gpu

ray:  ## the Ray Serve application on a local cluster; needs pip install -c constraints.txt -e ".[dev,ray]"
	pytest -m full tests/service/ray

image:  ## the image's steps, where no container engine is; needs root, debootstrap and bwrap
	python -m tests.image.check

format:
	ruff check --fix . && ruff format .

stubs:  ## regenerate protos/triptych/v1/*_pb2*.py
	python protos/generate.py

fixtures:  ## retrain the tests' toy translation model, and the toy models in half precision
	python -m tests.fixtures.make translation half
