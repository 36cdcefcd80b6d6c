# Optional features of a machine: the CUDA toolkit, NCCL, MPI. Each LOCKSTEP_<FEATURE> is AUTO, ON or OFF; each
# HAVE_<FEATURE> becomes ON or OFF, and <FEATURE>_WHY states what was found or is missing.

# Decides one feature: ON requires it, OFF disables it, AUTO uses it if found.
macro(lockstep_settle feature found why how)
  set(HAVE_${feature} OFF)
  set(${feature}_WHY "${why}")
  set(${feature}_HOW "${how}")
  if(NOT LOCKSTEP_${feature})
    set(${feature}_WHY "hidden by LOCKSTEP_${feature}=OFF")
    set(${feature}_HOW "-DLOCKSTEP_${feature}=AUTO")
  elseif(${found})
    set(HAVE_${feature} ON)
    set(${feature}_HOW "")
  elseif(NOT LOCKSTEP_${feature} STREQUAL "AUTO")
    message(FATAL_ERROR "LOCKSTEP_${feature}=ON, but ${why}. To get it: ${how}")
  endif()
endmacro()

# CUDA: a compiler for kernels, and LibTorch's CUDA libraries with their dependencies.
set(cuda_found OFF)
set(cuda_why "no CUDA compiler (nvcc)")
set(cuda_how "tools/bootstrap gpu")
if(LOCKSTEP_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(cuda_why "toolkit ${CUDAToolkit_VERSION}")
    if(CUDAToolkit_VERSION VERSION_LESS 13)
      set(cuda_why "toolkit ${CUDAToolkit_VERSION}, and LibTorch needs CUDA 13")
    elseif(NOT TARGET lockstep::torch_cuda)
      set(cuda_why "toolkit ${CUDAToolkit_VERSION}, but a LibTorch without CUDA")
      set(cuda_how "use the torch ${LOCKSTEP_TORCH_WANTED} wheel: tools/bootstrap gpu")
    else()
      # The small LibTorch of tools/bootstrap lacks dependencies of libtorch_cuda.so; only linking detects it.
      file(WRITE ${PROJECT_BINARY_DIR}/cuda_half.cpp "int main() { return 0; }\n")
      try_compile(cuda_half_links SOURCES ${PROJECT_BINARY_DIR}/cuda_half.cpp NO_CACHE
        LINK_LIBRARIES -Wl,--no-as-needed ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so
                       ${LOCKSTEP_TORCH_ROOT}/lib/libc10.so)
      if(cuda_half_links)
        set(cuda_found ON)
      else()
        set(cuda_why "toolkit ${CUDAToolkit_VERSION}, but LibTorch's CUDA libraries are not installed")
      endif()
    endif()
  endif()
endif()
lockstep_settle(CUDA cuda_found "${cuda_why}" "${cuda_how}")

if(HAVE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # A100, H100/H200, and PTX for later GPUs
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one LibTorch uses
  enable_language(CUDA)
endif()

# NCCL: headers and library of the wheel that LibTorch itself uses, so both share one copy.
set(nccl_found OFF)
set(nccl_why "CUDA is off")
if(HAVE_CUDA)
  set(nccl_why "no NCCL beside LibTorch")
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h PATHS ${LOCKSTEP_TORCH_ROOT}/../nvidia/nccl/include
            NO_DEFAULT_PATH NO_CACHE)
  find_library(LOCKSTEP_NCCL_LIBRARY NAMES libnccl.so.2 PATHS ${LOCKSTEP_TORCH_ROOT}/../nvidia/nccl/lib
               NO_DEFAULT_PATH NO_CACHE)
  if(LOCKSTEP_NCCL_INCLUDE AND LOCKSTEP_NCCL_LIBRARY)
    set(nccl_found ON)
    file(STRINGS ${LOCKSTEP_NCCL_INCLUDE}/nccl.h nccl_lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" nccl_version "${nccl_lines}")
    list(JOIN nccl_version "." nccl_version)
    set(nccl_why "${nccl_version}")
  endif()
endif()
lockstep_settle(NCCL nccl_found "${nccl_why}" "tools/bootstrap gpu")
if(HAVE_NCCL AND NOT TARGET lockstep::nccl)
  add_library(lockstep::nccl SHARED IMPORTED GLOBAL)
  set_target_properties(lockstep::nccl PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_NCCL_INCLUDE}
    INTERFACE_LINK_LIBRARIES CUDA::toolkit)  # nccl.h includes cuda_runtime.h
endif()

set(mpi_found OFF)
set(mpi_why "no MPI compiler wrapper")
if(LOCKSTEP_MPI)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(mpi_found ON)
    set(mpi_why "standard ${MPI_CXX_VERSION}")
  endif()
endif()
lockstep_settle(MPI mpi_found "${mpi_why}" "apt-get install libopenmpi-dev openmpi-bin")
