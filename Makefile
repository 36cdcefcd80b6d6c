# The two commands of the README, and the commands of a developer. The work is done by tools/ and CMake's presets.
PRESET ?= dev
MINUTES ?= 3

# Virtual machines may hide the SVE of a processor that has it (Neoverse V1, N2, V2). The BLAS in LibTorch's wheel then
# crashes with SIGSEGV unless this variable makes it use the baseline instruction set. lockstep sets it for the programs
# that it starts (machine/hidden_sve.h). This is for what make starts without it: Python that imports torch, also before
# anything is built, tests and benchmarks.
HIDES_SVE := $(shell grep -q 'CPU part.*0xd4[09f]' /proc/cpuinfo && ! grep -qw sve /proc/cpuinfo && echo yes)
ifeq ($(HIDES_SVE),yes)
export NVPL_BLAS_DEBUG_CPU_TYPE ?= 1
endif

.PHONY: train test bench soak format tidy help

train:  ## install what is missing, build, train a GPT
	@tools/bootstrap train
	@cmake --preset release
	@cmake --build --preset release --target lockstep_programs
	@build/release/bin/lockstep train gpt

test:  ## install what is missing, build, run all tests (PRESET=asan or tsan: sanitizers)
	@tools/bootstrap test
	@cmake --preset $(PRESET) -DLOCKSTEP_BUILD_TESTS=ON -DLOCKSTEP_BUILD_BENCHMARKS=ON
	@cmake --build --preset $(PRESET) --target all all_verify_interface_header_sets
	@tools/run_tests build/$(PRESET)

bench:  ## print the figures of README and docs
	@tools/bootstrap test
	@cmake --preset release -DLOCKSTEP_BUILD_BENCHMARKS=ON
	@cmake --build --preset release
	@build/release/benchmarks/base_benchmark
	@build/release/benchmarks/kernels_benchmark
	@build/release/benchmarks/rendezvous_benchmark
	@build/release/benchmarks/fabric_benchmark
	@build/release/benchmarks/last_rank_benchmark
	@build/release/benchmarks/ddp_benchmark
	@OMP_NUM_THREADS=1 build/release/benchmarks/ddp_checks
	@OMP_NUM_THREADS=1 LOCKSTEP_RANKS=2 build/release/benchmarks/sync_batch_norm
	@build/release/benchmarks/data_benchmark --benchmark_filter=order
	@$(PYTHON_WITH_TORCH) benchmarks/data_against_python build/release/benchmarks
	@OMP_NUM_THREADS=1 build/release/benchmarks/train_benchmark
	@$(PYTHON_WITH_TORCH) benchmarks/small_step_against_python build/release/benchmarks
	@$(PYTHON_WITH_TORCH) benchmarks/checkpoint_against_python build/release/benchmarks
	@$(PYTHON_WITH_TORCH) benchmarks/tokenizer_benchmark build/release/bin/lockstep
	@build/release/bin/lockstep bench comm -n 2 --sizes 1K,64K,1M,25M --memory both $(PEERS)
	@build/release/bin/lockstep bench comm -n 8 --sizes 4K,1M $(PEERS)
	@benchmarks/launch_benchmark $(CURDIR)/build/release/bin/lockstep $(PYTHON_WITH_TORCH)
	@$(PYTHON_WITH_TORCH) benchmarks/ddp_against_python/compare.py build/release/benchmarks
	@$(PYTHON_WITH_TORCH) benchmarks/ddp_against_python/start_up.py build/release
	@$(PYTHON_WITH_TORCH) benchmarks/train_against_python/compare.py build/release/bin/lockstep
	@$(PYTHON_WITH_TORCH) benchmarks/train_against_python/seeds.py build/release/bin/lockstep

# Evaluated when a recipe runs.
PYTHON_WITH_TORCH = $$(tools/bootstrap where | sed -n s/^python=//p)
PEERS = --python $(PYTHON_WITH_TORCH) --compare gloo$$([ ! -x build/release/bin/lockstep-bench-mpi ] || echo ,mpi)

soak:  ## random, fault and fuzz tests for a long time (MINUTES=480: one night)
	@tools/bootstrap test
	@tools/soak $(MINUTES)

format:  ## format every C++ file with clang-format 14
	@tools/check_format --fix

tidy:  ## run clang-tidy 14 over every C++ file
	@cmake --preset dev -B build/tidy -DLOCKSTEP_PCH=OFF  # clang cannot read headers precompiled by GCC
	@cmake --build build/tidy --target tidy

help:
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'
