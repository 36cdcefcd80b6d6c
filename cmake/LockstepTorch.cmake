# LibTorch as the target lockstep::torch, and with its CUDA libraries as lockstep::torch_cuda. Used by lockstep's own
# build and, installed beside lockstepConfig.cmake, by programs that link lockstep. LibTorch's own package file is not
# used because it fails without a CUDA toolkit. If the project has already called find_package(Torch), that one is used.
#
# Reads LOCKSTEP_TORCH_DIR (variable, then environment): a folder with include/ and lib/.
# Sets  LOCKSTEP_TORCH_VERSION, LOCKSTEP_TORCH_ROOT and LOCKSTEP_TORCH_IS_THEIRS.

set(LOCKSTEP_TORCH_WANTED 2.11.0)

set(LOCKSTEP_TORCH_IS_THEIRS OFF)
if(TARGET torch)
  set(LOCKSTEP_TORCH_IS_THEIRS ON)
  list(GET TORCH_INCLUDE_DIRS 0 LOCKSTEP_TORCH_ROOT)
  cmake_path(GET LOCKSTEP_TORCH_ROOT PARENT_PATH LOCKSTEP_TORCH_ROOT)
elseif(LOCKSTEP_TORCH_DIR)
  set(LOCKSTEP_TORCH_ROOT ${LOCKSTEP_TORCH_DIR})
elseif(DEFINED ENV{LOCKSTEP_TORCH_DIR})
  set(LOCKSTEP_TORCH_ROOT $ENV{LOCKSTEP_TORCH_DIR})
else()
  message(FATAL_ERROR "LibTorch was not found. Run tools/bootstrap train, or set LOCKSTEP_TORCH_DIR to the "
                      "folder of a torch ${LOCKSTEP_TORCH_WANTED} that holds include/ and lib/.")
endif()

set(version_file ${LOCKSTEP_TORCH_ROOT}/include/torch/headeronly/version.h)  # since 2.8
if(NOT EXISTS ${version_file})
  set(version_file ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h)
endif()
if(NOT EXISTS ${version_file} OR NOT EXISTS ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "${LOCKSTEP_TORCH_ROOT} is not a LibTorch: it lacks include/torch or "
                      "lib/libtorch_cpu.so. Set LOCKSTEP_TORCH_DIR to the folder that holds both, or unset "
                      "it and run tools/bootstrap train.")
endif()
set(LOCKSTEP_TORCH_VERSION "")
foreach(part IN ITEMS MAJOR MINOR PATCH)
  file(STRINGS ${version_file} line REGEX "#define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+" number "${line}")
  list(APPEND LOCKSTEP_TORCH_VERSION ${number})
endforeach()
list(JOIN LOCKSTEP_TORCH_VERSION "." LOCKSTEP_TORCH_VERSION)

if(NOT LOCKSTEP_TORCH_VERSION MATCHES "^2\\.")
  message(FATAL_ERROR "LibTorch ${LOCKSTEP_TORCH_VERSION} in ${LOCKSTEP_TORCH_ROOT} is not supported: lockstep "
                      "needs 2.x and is tested with ${LOCKSTEP_TORCH_WANTED}.")
elseif(NOT LOCKSTEP_TORCH_VERSION STREQUAL LOCKSTEP_TORCH_WANTED)
  message(WARNING "LibTorch ${LOCKSTEP_TORCH_VERSION} instead of ${LOCKSTEP_TORCH_WANTED}: it may work, but "
                  "the tests and the claims about bit-identical results are for ${LOCKSTEP_TORCH_WANTED}.")
endif()

if(TARGET lockstep::torch)
  return()
endif()
add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
if(LOCKSTEP_TORCH_IS_THEIRS)
  if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    message(FATAL_ERROR "The Torch that find_package found is built with _GLIBCXX_USE_CXX11_ABI=0, lockstep "
                        "with 1: their strings differ. Use the torch ${LOCKSTEP_TORCH_WANTED} wheel.")
  endif()
  target_link_libraries(lockstep::torch INTERFACE ${TORCH_LIBRARIES})
  add_library(lockstep::torch_cuda ALIAS lockstep::torch)  # find_package(Torch) has one target for both
  return()
endif()

foreach(library IN ITEMS c10 torch_cpu)
  add_library(lockstep::libtorch_${library} SHARED IMPORTED GLOBAL)
  set_target_properties(lockstep::libtorch_${library} PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_TORCH_ROOT}/lib/lib${library}.so
    INTERFACE_INCLUDE_DIRECTORIES
      "${LOCKSTEP_TORCH_ROOT}/include;${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include")
endforeach()
target_compile_definitions(lockstep::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(lockstep::torch INTERFACE lockstep::libtorch_torch_cpu lockstep::libtorch_c10)

if(EXISTS ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so)
  add_library(lockstep::torch_cuda INTERFACE IMPORTED GLOBAL)
  # Kernels register themselves when the library is loaded, so the linker must keep libraries that look unused.
  target_link_libraries(lockstep::torch_cuda INTERFACE lockstep::torch
    "-Wl,--push-state,--no-as-needed"
    ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so ${LOCKSTEP_TORCH_ROOT}/lib/libc10_cuda.so
    "-Wl,--pop-state")
endif()
