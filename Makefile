# The two commands of the README, and what a developer runs beside them. Everything is in tools/ and in
# CMake's presets; these lines only name it.
PRESET ?= dev
MINUTES ?= 3

# Virtual machines may hide SVE of a processor that has it (Neoverse V1, N2, V2). The BLAS in LibTorch's wheel then
# dies of SIGSEGV unless it is told to take the processor for a plain one.
HIDES_SVE := $(shell grep -q 'CPU part.*0xd4[09f]' /proc/cpuinfo && ! grep -qw sve /proc/cpuinfo && echo yes)
ifeq ($(HIDES_SVE),yes)
export NVPL_BLAS_DEBUG_CPU_TYPE ?= 1
endif

.PHONY: train test bench soak format tidy help

train:  ## set up, build, run the main job
	@tools/bootstrap train
	@cmake --preset release
	@cmake --build --preset release --target lockstep 01_hello_ranks
	@build/release/bin/lockstep run build/release/examples/01_hello_ranks

test:  ## set up, build, pass all tests (PRESET=asan or tsan for the sanitizers)
	@tools/bootstrap test
	@cmake --preset $(PRESET) -DLOCKSTEP_BUILD_TESTS=ON -DLOCKSTEP_BUILD_BENCHMARKS=ON
	@cmake --build --preset $(PRESET) --target all all_verify_interface_header_sets
	@tools/run_tests build/$(PRESET)

bench:  ## the figures the README quotes
	@tools/bootstrap test
	@cmake --preset release -DLOCKSTEP_BUILD_BENCHMARKS=ON
	@cmake --build --preset release --target lockstep base_benchmark fabric_benchmark
	@build/release/benchmarks/base_benchmark
	@build/release/benchmarks/fabric_benchmark
	@benchmarks/launch_benchmark $(CURDIR)/build/release/bin/lockstep $$(tools/bootstrap where | sed -n s/^python=//p)

soak:  ## long random, fault and fuzz runs (MINUTES=480 for a night)
	@tools/bootstrap test
	@tools/soak $(MINUTES)

format:  ## write every C++ file as clang-format 14 does
	@tools/check_format --fix

tidy:  ## clang-tidy 14 over every C++ file
	@cmake --preset dev
	@cmake --build --preset dev --target tidy

help:
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'
