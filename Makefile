# The front door. `make` alone lists the targets; everything is built under build/.

MODEL ?= default
PROMPT ?= Tell me in one sentence what a quarrel is.
override PROMPT := $(value PROMPT)
export MODEL PROMPT TYPES

JOBS := $(shell nproc)
QUARREL := build/release/quarrel
SOURCES = git ls-files -z --cached --others --exclude-standard -- \
  $(foreach folder,src include tests bench examples,'$(folder)/*.h' '$(folder)/*.c' '$(folder)/*.cpp' '$(folder)/*.inl' \
  '$(folder)/*.cu' '$(folder)/*.cuh')
# ThreadSanitizer needs a memory layout that some kernels only give without randomisation.
FIXED_LAYOUT := $(shell setarch -R true 2> /dev/null && echo setarch -R)

.DEFAULT_GOAL := help
.NOTPARALLEL:
# CUDA is compiled for those who ask for it: QUARREL_CUDA=1.
TEST_CUDA := $(if $(filter 1,$(QUARREL_CUDA)),test-cuda)

.PHONY: help setup setup-test setup-format setup-lint setup-web with-tests pull build man pgo shared run serve page test-page openapi check test test-sanitizers test-release test-asan test-tsan \
  cuda test-cuda bench-cuda-peers cross flight bench bench-server bench-flight soak format check-style lint clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 21

build: build/release/build.ninja  ## the program: build/release/quarrel
	@ninja -C build/release -j $(JOBS) quarrel 1>&2

man: build  ## the manual page: build/quarrel.1
	@$(QUARREL) help --man > build/quarrel.1
	@ls -l build/quarrel.1

# Ninja does not see that the counts have changed: what was compiled by older ones goes.
pgo: build/pgo-train/build.ninja  ## the program optimised for what the default model does: build/pgo/quarrel
	@ninja -C build/pgo-train -j $(JOBS) quarrel 1>&2
	@rm -rf build/profile
	@scripts/train_profile build/pgo-train/quarrel
	@cmake --preset pgo 1>&2
	@ninja -C build/pgo -t clean 1>&2
	@ninja -C build/pgo -j $(JOBS) quarrel 1>&2
	@python3 tools/check_levels.py build/pgo/quarrel
	@ls -l build/pgo/quarrel

shared: build/shared/build.ninja  ## the library for other programs: build/shared/libquarrel.so
	@ninja -C build/shared -j $(JOBS) quarrel_shared 1>&2
	@python3 tools/check_levels.py build/shared/libquarrel.so
	@python3 tools/check_exports.py build/shared/libquarrel.so
	@ls -l build/shared/libquarrel.so

flight: build  ## the client of Longbow: build/release/libquarrel_flight.so
	@scripts/setup flight
	@cmake --preset release -DQUARREL_FLIGHT=ON > /dev/null
	@ninja -C build/release -j $(JOBS) quarrel quarrel_flight_module 1>&2
	@ls -l build/release/libquarrel_flight.so

serve: build  ## the server on http://127.0.0.1:8080 (QUARREL_PORT) and its page; MODEL=name
	@[ "$$MODEL" != default ] || $(QUARREL) pull default > /dev/null
	@exec scripts/serve $(QUARREL) "$$MODEL"

run: build  ## a chat in the terminal; without one, the answer to PROMPT; MODEL=name
	@[ "$$MODEL" != default ] || $(QUARREL) pull default > /dev/null
	@if [ -t 0 ] && [ -t 1 ]; then exec $(QUARREL) run "$$MODEL"; \
	else exec $(QUARREL) run "$$MODEL" "$$PROMPT" < /dev/null; fi

page: setup-web  ## the page's files, web/dist, from what is under web/
	@scripts/npm run --silent build

test-page: setup-web pull with-tests  ## the page: its types, its rules, its parts, and the whole in a browser
	@ninja -C build/release -j $(JOBS) make_toy 1>&2
	@scripts/npm run --silent types
	@scripts/npm run --silent lint
	@scripts/npm run --silent unit
	@scripts/npm run --silent fresh
	@scripts/npm run --silent browser

openapi: with-tests  ## docs/openapi.yaml as the server's tables say it
	@ninja -C build/release -j $(JOBS) write_openapi 1>&2
	@build/release/write_openapi > docs/openapi.yaml

# The quick part of `test`: no sanitizers, no real models, not the program itself.
check: check-style with-tests  ## the layout, the house rules, the unit and op tests: before every commit
	@ninja -C build/release -j $(JOBS) tests_unit tests_ops 1>&2
	@ctest --test-dir build/release --output-on-failure --no-tests=error -L '^(unit|ops)$$' -j $(JOBS)

test: test-release test-page $(TEST_CUDA)  ## every test, the page's too; CUDA's with QUARREL_CUDA=1
	@echo 'All tests passed.'

test-sanitizers: test-asan test-tsan  ## those that sanitizers can run, under AddressSanitizer, UBSan and ThreadSanitizer
	@echo 'All tests passed under sanitizers.'

bench: build/release/build.ninja  ## kernels, models of each weight type, the default model: build/bench; TYPES="Q4_0 …"
	@scripts/setup bench
	@cmake --preset release -DQUARREL_BENCH=ON > /dev/null
	@ninja -C build/release -j $(JOBS) bench/all quarrel 1>&2
	@python3 tools/run_bench.py $(if $(TYPES),--types "$$TYPES")
	@$(QUARREL) pull default > /dev/null
	@$(QUARREL) bench default --profile

bench-server: build/release/build.ninja  ## what the server's own work costs: a token's event, a body's JSON
	@scripts/setup bench
	@cmake --preset release -DQUARREL_BENCH=ON > /dev/null
	@ninja -C build/release -j $(JOBS) server_bench 1>&2
	@build/release/server_bench

bench-flight: with-tests  ## vectors into a store with this client and with pyarrow's, in turns
	@scripts/setup bench flight
	@cmake --preset release -DQUARREL_BENCH=ON -DQUARREL_FLIGHT=ON > /dev/null
	@ninja -C build/release -j $(JOBS) flight_put longbow_server quarrel quarrel_flight_module 1>&2
	@$(QUARREL) pull minilm > /dev/null
	@.venv-flight/bin/python tools/bench_flight.py

soak: pull with-tests  ## the long tests and the fuzzing campaign
	@scripts/setup clients generators web
	@scripts/setup prometheus || echo 'Prometheus cannot be installed here: its test is skipped, and the soak fails at its end.' >&2
	@ninja -C build/release -j $(JOBS) 1>&2
	@ctest --test-dir build/release --output-on-failure -L '^soak$$' -j 1
	@scripts/npm run --silent soak
	@$(MAKE) --no-print-directory build/asan-ubsan/build.ninja
	@ninja -C build/asan-ubsan -j $(JOBS) fuzz_requests_test 1>&2
	@QUARREL_FUZZ_CASES=1000000 build/asan-ubsan/fuzz_requests_test --gtest_brief=1
	@[ ! -x scripts/fuzz ] || scripts/fuzz
	@[ -n "$$PROMETHEUS" ] || command -v prometheus > /dev/null || [ -x .prometheus/usr/bin/prometheus ] || { \
	  echo 'error: all the rest passed, but no Prometheus has scraped the server: `scripts/setup prometheus` gets one' >&2; exit 1; }

format: setup-format  ## lays out the C++ sources
	@$(SOURCES) | xargs -0 -r clang-format-19 -i

check-style: setup-format  ## the house rules and the layout
	@python3 tools/check_source.py --self-test
	@python3 tools/check_source.py
	@python3 tools/check_commits.py --self-test
	@python3 tools/check_commits.py
	@$(SOURCES) | xargs -0 -r clang-format-19 --dry-run --Werror

lint: check-style setup-lint build/lint/build.ninja  ## the same, and clang-tidy
	@ninja -C build/lint quarrel_version 1>&2
	@run-clang-tidy-19 -quiet -p build/lint -j $(JOBS) '^$(CURDIR)/src/.*\.cpp$$'

clean:  ## removes build/
	rm -rf build

setup:  ## installs what building needs
	@scripts/setup

setup-test:  ## installs what compiling the tests needs too
	@scripts/setup test

setup-format:  ## installs clang-format too
	@scripts/setup format

setup-lint:  ## installs all clang tools too
	@scripts/setup lint

setup-web:  ## installs what the page is built and tested with
	@scripts/setup web

pull: build  ## fetches the models that tests run
	@$(QUARREL) pull default > /dev/null
	@$(QUARREL) pull minilm > /dev/null || echo 'The model minilm is not here: its tests are skipped.' >&2

# Ninja runs CMake again by itself when a CMake file changes.
build/%/build.ninja: | setup-test
	@cmake --preset $* 1>&2

build/pgo-train/build.ninja build/shared/build.ninja: build/%/build.ninja: | setup
	@cmake --preset $* 1>&2

# Whoever only wants the program needs neither the tests nor what they are compiled with: `with-tests` adds them.
build/release/build.ninja: | setup
	@cmake --preset release -DQUARREL_TESTS=OFF 1>&2

with-tests: setup-test build/release/build.ninja  ## makes build/release compile tests too
	@grep -qs '^QUARREL_TESTS:BOOL=ON$$' build/release/CMakeCache.txt || cmake --preset release -DQUARREL_TESTS=ON 1>&2

# Quick tests first. What runs the real model has the cores to itself.
test-release: pull with-tests  ## every test of the ordinary build
	@scripts/setup clients flight
	@cmake --preset release -DQUARREL_FLIGHT=ON > /dev/null
	@ninja -C build/release -j $(JOBS) 1>&2
	@ctest --test-dir build/release --output-on-failure --no-tests=error -L '^unit$$' -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -LE '^(unit|golden|soak)$$' -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -L '^golden$$' -j 1

test-asan: build/asan-ubsan/build.ninja  ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup flight
	@cmake --preset asan-ubsan -DQUARREL_FLIGHT=ON > /dev/null
	@ninja -C build/asan-ubsan -j $(JOBS) tests_unit tests_ops tests_models tests_fuzz tests_flight 1>&2
	@UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir build/asan-ubsan --output-on-failure --no-tests=error \
	  -L '^(unit|ops|models|fuzz|flight)$$' -j $(JOBS)

test-tsan: build/tsan/build.ninja  ## tests of threads under ThreadSanitizer
	@scripts/setup flight
	@cmake --preset tsan -DQUARREL_FLIGHT=ON > /dev/null
	@ninja -C build/tsan -j $(JOBS) tests_threads tests_flight 1>&2
	@$(FIXED_LAYOUT) ctest --test-dir build/tsan --output-on-failure -L '^(threads|flight)$$' -j $(JOBS)

# Debian's cross compiler, and qemu-user for the tests. Left out by name: programs that take minutes there and test nothing
# that depends on the processor, and what emulation cannot show: death tests that start themselves again, whether a program
# or a thread could be started or slept, and whose the mappings of memory are.
CROSS_SLOW := convert_quantize_test|sched_simulator_test
CROSS_NOT_EMULATED := ForeignFault.*:Subprocess.AMissingProgramIsNotFound:ThreadPool.TooManyThreadsAreAnError:ThreadPool.TheCallerSleepsWhenAWorkerTakesLong:$\
  AlignedBuffer.AsksForHugePagesWhereTheyFit:AlignedBuffer.MapsAndUnmapsExactly
cross:  ## the program compiled for arm64, its unit and op tests under qemu-user
	@scripts/setup cross
	@[ -f build/arm64/build.ninja ] || cmake --preset arm64 1>&2
	@ninja -C build/arm64 -j $(JOBS) quarrel tests_unit tests_ops 1>&2
	@GTEST_FILTER='-$(CROSS_NOT_EMULATED)' ctest --test-dir build/arm64 --output-on-failure --no-tests=error \
	  -L '^(unit|ops)$$' -E '^($(CROSS_SLOW))$$' -j $(JOBS)

# A folder of its own: the other builds know nothing of CUDA.
cuda:  ## the program with its module for NVIDIA GPUs: build/cuda/quarrel
	@scripts/setup cuda
	@cmake -G Ninja -B build/cuda -DCMAKE_BUILD_TYPE=Release -DQUARREL_CUDA=ON -DQUARREL_TESTS=OFF -DQUARREL_EXAMPLES=OFF . > /dev/null
	@ninja -C build/cuda -j $(JOBS) quarrel quarrel_cuda_module 1>&2
	@ls -l build/cuda/quarrel build/cuda/libquarrel_cuda.so

# Without a GPU the program says so and returns 77.
test-cuda:  ## the CUDA backend compiled, and tested where there is a GPU
	@scripts/setup test cuda
	@cmake -G Ninja -B build/cuda -DCMAKE_BUILD_TYPE=Release -DQUARREL_CUDA=ON -DQUARREL_TESTS=ON -DQUARREL_EXAMPLES=OFF . > /dev/null
	@ninja -C build/cuda -j $(JOBS) tests_cuda 1>&2
	@build/cuda/cuda_kernels --check || [ $$? -eq 77 ]
	@ctest --test-dir build/cuda --output-on-failure --no-tests=error -L '^cuda$$' -E '^cuda_kernels$$' -j 1

# Without a GPU the program says so and returns 77.
bench-cuda-peers:  ## kernels of FlashInfer and CUTLASS beside ours, on the same data in the same run
	@scripts/setup cuda peers
	@cmake -G Ninja -B build/cuda -DCMAKE_BUILD_TYPE=Release -DQUARREL_CUDA=ON -DQUARREL_CUDA_PEERS=ON -DQUARREL_TESTS=OFF \
	  -DQUARREL_EXAMPLES=OFF . > /dev/null
	@ninja -C build/cuda -j $(JOBS) cuda_peers 1>&2
	@build/cuda/cuda_peers || [ $$? -eq 77 ]
