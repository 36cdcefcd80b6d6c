# The summary that configure prints: what was found, what it enables, how to get what is missing.

if(LOCKSTEP_FUZZ)
  message(STATUS "lockstep ${PROJECT_VERSION}: fuzz targets only, ${CMAKE_CXX_COMPILER_ID} "
                 "${CMAKE_CXX_COMPILER_VERSION}")
  return()
endif()

# One row; `how` is empty for an enabled feature.
function(lockstep_row name found switches_on how)
  string(SUBSTRING "${name}          " 0 9 name)
  if(how STREQUAL "")
    message(STATUS "  on   ${name} ${found}: ${switches_on}")
  else()
    message(STATUS "  off  ${name} ${found}. To get it: ${how}")
  endif()
endfunction()

message(STATUS "lockstep ${PROJECT_VERSION} for ${CMAKE_SYSTEM_PROCESSOR}, ${CMAKE_BUILD_TYPE}, "
               "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
lockstep_row(LibTorch "${LOCKSTEP_TORCH_VERSION}" "training on the CPU, from ${LOCKSTEP_TORCH_ROOT}" "")
lockstep_row(CUDA "${CUDA_WHY}" "training on GPUs" "${CUDA_HOW}")
lockstep_row(NCCL "${NCCL_WHY}" "the backend of ranks with one GPU each" "${NCCL_HOW}")
lockstep_row(MPI "${MPI_WHY}" "backend mpi, and a peer of lockstep bench comm" "${MPI_HOW}")
if(LOCKSTEP_CCACHE)
  lockstep_row(ccache "found" "files that have not changed are not compiled again" "")
else()
  lockstep_row(ccache "not found" "" "apt-get install ccache")
endif()
if(LOCKSTEP_LINKER)
  lockstep_row(linker "${LOCKSTEP_LINKER}" "faster links" "")
else()
  lockstep_row(linker "no mold, no lld" "" "apt-get install mold")
endif()
