# The libraries that lockstep uses. fmt, nlohmann-json and CLI11 are used in source files only: no public header of
# lockstep names one of their types.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)

target_link_libraries(lockstep_compiler INTERFACE nlohmann_json::nlohmann_json fmt::fmt)
# LibTorch's include folder has another version of fmt, which is header-only and costs two seconds more per file. The
# folder made here forwards to the system's fmt and is searched before LibTorch's. As system headers they give no
# warnings.
find_path(LOCKSTEP_FMT_INCLUDE fmt/format.h REQUIRED)
file(GLOB fmt_headers RELATIVE ${LOCKSTEP_FMT_INCLUDE} ${LOCKSTEP_FMT_INCLUDE}/fmt/*.h)
foreach(header IN LISTS fmt_headers)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/fmt_first/${header}
       CONTENT "#pragma GCC system_header\n#include \"${LOCKSTEP_FMT_INCLUDE}/${header}\"\n")
endforeach()
target_include_directories(lockstep_compiler INTERFACE ${PROJECT_BINARY_DIR}/fmt_first)
# As LibTorch is compiled. Set for all files, because a precompiled header needs the same definitions as its users.
target_compile_definitions(lockstep_compiler INTERFACE _GLIBCXX_USE_CXX11_ABI=1)

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

# tools/bootstrap knows the locations of LibTorch and of the CUDA toolkit that it has installed; what the user has set
# comes first.
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/bootstrap where
                OUTPUT_VARIABLE bootstrap_says ERROR_QUIET)
if(NOT LOCKSTEP_TORCH_DIR AND bootstrap_says MATCHES "torch=([^\n]+)")
  set(LOCKSTEP_TORCH_DIR ${CMAKE_MATCH_1})
endif()
if(NOT LOCKSTEP_PYTHON AND bootstrap_says MATCHES "python=([^\n]+)")
  set(LOCKSTEP_PYTHON ${CMAKE_MATCH_1})
endif()
if(NOT CUDAToolkit_ROOT AND NOT CMAKE_CUDA_COMPILER AND bootstrap_says MATCHES "cuda=([^\n]+)")
  set(CUDAToolkit_ROOT ${CMAKE_MATCH_1})
  set(CMAKE_CUDA_COMPILER ${CMAKE_MATCH_1}/bin/nvcc)
endif()
include(LockstepTorch)
include(LockstepFeatures)
