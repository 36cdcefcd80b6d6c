# What lockstep is built on. fmt, nlohmann-json and CLI11 are used in source files alone: no public header of
# ours names a type of theirs.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)

target_link_libraries(lockstep_compiler INTERFACE nlohmann_json::nlohmann_json)

if(LOCKSTEP_FUZZ)
  return()
endif()
if(LOCKSTEP_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(LOCKSTEP_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
if(LOCKSTEP_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()

# tools/bootstrap knows where it put LibTorch, or where it found one; ask it unless the user said.
if(NOT LOCKSTEP_TORCH_DIR OR NOT LOCKSTEP_PYTHON)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/bootstrap where
                  OUTPUT_VARIABLE bootstrap_says ERROR_QUIET)
endif()
if(NOT LOCKSTEP_TORCH_DIR AND bootstrap_says MATCHES "torch=([^\n]+)")
  set(LOCKSTEP_TORCH_DIR ${CMAKE_MATCH_1})
endif()
if(NOT LOCKSTEP_PYTHON AND bootstrap_says MATCHES "python=([^\n]+)")
  set(LOCKSTEP_PYTHON ${CMAKE_MATCH_1})
endif()
include(LockstepTorch)
include(LockstepFeatures)
