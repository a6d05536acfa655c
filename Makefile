.PHONY: install test full soak gpu ray image lint format stubs fixtures

install:  ## everything that contributing needs
	pip install -c constraints.txt -e ".[dev]"

test:  ## the fast tier: lint, types, walls, stubs, tests with a real server
	pytest -n 2 --dist loadfile

full:  ## longer suites; TRIPTYCH_CHECKPOINT and TRIPTYCH_PAIRS add a real model
	pytest -m full

soak:  ## minutes of load; TRIPTYCH_SOAK_SECONDS and TRIPTYCH_STORM_SECONDS set how many
	pytest -m soak

gpu:  ## the suite for a CUDA device, which is skipped where there is none; `python -m tests.gpu.kit` adds the benchmarks
	pytest -m gpu tests/gpu

ray:  ## the Ray Serve application on a local cluster; needs pip install -c constraints.txt -e ".[dev,ray]"
	pytest -m full tests/service/ray

image:  ## the image's steps, where no container engine is; needs root, debootstrap and bwrap
	python -m tests.image.check

lint:
	ruff check . && ruff format --check . && mypy && lint-imports

format:
	ruff check --fix . && ruff format .

stubs:  ## regenerate protos/triptych/v1/*_pb2*.py
	python protos/generate.py

fixtures:  ## retrain the tests' toy model
	python tests/fixtures/make.py
	python tests/fixtures/make_half.py
