# Headers that many files include are parsed once per build: every source of lockstep gets the precompiled header of
# its kind, which depends on its includes.
#
#   plain    the standard library and fmt
#   json     these and JSON
#   tensor   these and LibTorch's tensors
#   torch    these and all of LibTorch, for files that include more of it than tensors and single operators
#
# and tests plain_test, tensor_test and torch_test, with GoogleTest. A file still includes what it uses: the tidy build and
# -DLOCKSTEP_PCH=OFF compile without these headers. Loops over memory (lockstep_vector_sources) get none: they include
# little, and are compiled for other instruction sets than the precompiled headers.

set(lockstep_plain <algorithm> <array> <atomic> <charconv> <chrono> <cstddef> <cstdint> <cstring> <filesystem>
    <fstream> <functional> <map> <memory> <mutex> <optional> <span> <sstream> <string> <string_view> <thread> <utility>
    <vector> <fmt/format.h> <fmt/ranges.h>)
set(LOCKSTEP_PCH_plain ${lockstep_plain})
set(LOCKSTEP_PCH_json ${lockstep_plain} <nlohmann/json.hpp>)
set(LOCKSTEP_PCH_tensor ${LOCKSTEP_PCH_json} <ATen/core/Tensor.h>)
set(LOCKSTEP_PCH_torch ${lockstep_plain} <torch/torch.h>)
set(LOCKSTEP_PCH_plain_test ${lockstep_plain} <gtest/gtest.h>)
set(LOCKSTEP_PCH_tensor_test ${lockstep_plain} <gtest/gtest.h> <ATen/core/Tensor.h>)
set(LOCKSTEP_PCH_torch_test ${lockstep_plain} <gtest/gtest.h> <torch/torch.h>)

if(LOCKSTEP_FUZZ OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(LOCKSTEP_PCH OFF)
endif()
if(LOCKSTEP_PCH)
  file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "// Compiled only for its precompiled header.\n")
  foreach(kind IN ITEMS plain json tensor torch plain_test tensor_test torch_test)
    if(kind MATCHES "test" AND NOT LOCKSTEP_BUILD_TESTS)
      continue()
    endif()
    set(target lockstep_pch_${kind})
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cpp)
    target_precompile_headers(${target} PRIVATE ${LOCKSTEP_PCH_${kind}})
    target_link_libraries(${target} PRIVATE lockstep_compiler)
    if(kind MATCHES "test")
      target_link_libraries(${target} PRIVATE GTest::gtest)
    endif()
    if(kind MATCHES "tensor|torch")
      target_link_libraries(${target} PRIVATE lockstep::torch)
      set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE lockstep_torch)
    endif()
    set(LOCKSTEP_PCH_FILE_${kind} ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx)
  endforeach()
endif()

# How much of LibTorch the file at `path` includes, by way of our own headers too: torch, tensor or plain.
function(lockstep_torch_in path result)
  get_property(known GLOBAL PROPERTY LOCKSTEP_TORCH_IN_${path})
  if(NOT known)
    set(known plain)
    set_property(GLOBAL PROPERTY LOCKSTEP_TORCH_IN_${path} ${known})  # for headers that include each other
    file(STRINGS ${path} includes REGEX "^#include ")
    if(includes MATCHES "<(ATen|c10)/")
      set(known tensor)
    endif()
    foreach(include IN LISTS includes)
      if(include MATCHES "<torch/" OR known STREQUAL torch)
        set(known torch)
        break()
      endif()
      string(REGEX MATCH "\"([^\"]+)\"" quoted "${include}")
      foreach(folder IN ITEMS src/ "")
        if(quoted AND EXISTS ${PROJECT_SOURCE_DIR}/${folder}${CMAKE_MATCH_1})
          lockstep_torch_in(${PROJECT_SOURCE_DIR}/${folder}${CMAKE_MATCH_1} below)
          if(NOT below STREQUAL plain)
            set(known ${below})
          endif()
          break()
        endif()
      endforeach()
    endforeach()
    set_property(GLOBAL PROPERTY LOCKSTEP_TORCH_IN_${path} ${known})
  endif()
  set(${result} ${known} PARENT_SCOPE)
endfunction()

# The kind of the source at `path`. A test has the header for all that it includes, because it includes much; other
# files that include LibTorch only by our headers need its tensors.
function(lockstep_kind_of path result)
  file(STRINGS ${path} includes REGEX "^#include ")
  lockstep_torch_in(${path} kind)
  if(includes MATCHES "<gtest/")
    set(${result} ${kind}_test PARENT_SCOPE)
    return()
  endif()
  if(includes MATCHES "<torch/|<ATen/[A-Z][A-Za-z]*\\.h>")
    set(kind torch)
  elseif(NOT kind STREQUAL plain)
    set(kind tensor)
  elseif(includes MATCHES "\"lockstep/base/json.h\"")
    set(kind json)
  endif()
  set(${result} ${kind} PARENT_SCOPE)
endfunction()

# Assigns the precompiled headers to the sources of `target`, which is declared in `folder`.
function(lockstep_precompile target folder)
  get_target_property(links ${target} LINK_LIBRARIES)
  get_target_property(definitions ${target} COMPILE_DEFINITIONS)
  get_target_property(sources ${target} SOURCES)
  if(NOT links MATCHES "lockstep_compiler" OR definitions MATCHES "LOCKSTEP_INSTRUCTION_SET")
    return()
  endif()
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} OUTPUT_VARIABLE path)
    if(NOT source MATCHES "\\.cpp$" OR NOT EXISTS ${path})
      continue()
    endif()
    lockstep_kind_of(${path} kind)
    if(kind MATCHES "tensor|torch")
      set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE lockstep_torch)
    endif()
    # Another target may have the same source, and GCC rejects a header that was compiled with another -O
    # or other definitions.
    get_source_file_property(options ${path} DIRECTORY ${folder} COMPILE_OPTIONS)
    if(LOCKSTEP_PCH AND NOT options MATCHES "-include|-O|-D")
      set(header ${LOCKSTEP_PCH_FILE_${kind}})
      # GCC 12 does not recognize inlined code of system headers, and warns about string lengths that never occur.
      set_property(SOURCE ${path} DIRECTORY ${folder} APPEND PROPERTY COMPILE_OPTIONS -include ${header} -Winvalid-pch
        -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
      set_property(SOURCE ${path} DIRECTORY ${folder} APPEND PROPERTY OBJECT_DEPENDS ${header}.gch)
    endif()
  endforeach()
endfunction()

# Does this for every target below `folder`. Called once, after all targets are declared.
function(lockstep_precompile_below folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "LIBRARY|EXECUTABLE" AND NOT type STREQUAL "INTERFACE_LIBRARY" AND NOT target MATCHES "_pch_")
      lockstep_precompile(${target} ${folder})
    endif()
  endforeach()
  foreach(below IN LISTS folders)
    lockstep_precompile_below(${below})
  endforeach()
endfunction()
