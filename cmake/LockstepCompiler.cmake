# How every file of lockstep is compiled: language, warnings, arithmetic, compiler cache and linker.

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_library(lockstep_compiler INTERFACE)
target_compile_features(lockstep_compiler INTERFACE cxx_std_20)
set(options
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # Results are bit-identical on all processors: aarch64 has fused multiply-add in its base set, x86-64 has not,
  # and GCC fuses by default. -fno-math-errno changes no result and lets GCC vectorize sqrt.
  -ffp-contract=off -fno-math-errno
  # Stacks in crash reports reach the caller even through optimized frames.
  -fno-omit-frame-pointer
  # One code model for libraries and programs, so that both can share a precompiled header.
  -fPIC)
if(LOCKSTEP_WERROR)
  list(APPEND options -Werror)
endif()
target_compile_options(lockstep_compiler INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")

if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  # With sanitizers, GCC reports initialized members of LibTorch's classes as uninitialized.
  target_compile_options(lockstep_compiler INTERFACE -Wno-maybe-uninitialized)
endif()

# A project that adds lockstep as a subdirectory keeps its own cache and linker.
if(PROJECT_IS_TOP_LEVEL)
  find_program(LOCKSTEP_CCACHE ccache)
  if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # ccache supports precompiled headers only with these settings.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LOCKSTEP_CCACHE})
  endif()
  find_program(LOCKSTEP_LINKER NAMES ld.mold ld.lld)
  if(LOCKSTEP_LINKER)
    string(REGEX REPLACE ".*ld\\." "" linker "${LOCKSTEP_LINKER}")
    add_link_options(-fuse-ld=${linker})
  endif()
endif()

# The compiler needs up to 2 GB for a file that includes <torch/torch.h>: memory limits how many run at a time.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR torch_jobs "${memory_mb} / 2048")
if(torch_jobs GREATER cores)
  set(torch_jobs ${cores})
elseif(torch_jobs LESS 1)
  set(torch_jobs 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS lockstep_torch=${torch_jobs})
