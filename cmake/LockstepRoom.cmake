# lockstep_room(NAME SOURCES … HEADERS … [TESTS …] [FUZZ …])
# declares a room of src/lockstep: the static library lockstep::NAME, its public headers, one test
# program per test file, one fuzz target per fuzz file. The rooms that it links, and torch, are read
# from docs/rooms.txt; a test compares the includes with the same lines.

set(LOCKSTEP_ROOMS_FILE ${PROJECT_SOURCE_DIR}/docs/rooms.txt CACHE INTERNAL "")

# The rooms that docs/rooms.txt allows `name` to include, and torch.
function(lockstep_rooms_below name result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LOCKSTEP_ROOMS_FILE})
  file(STRINGS ${LOCKSTEP_ROOMS_FILE} line REGEX "^${name} *:")
  if(NOT line)
    message(FATAL_ERROR "Room '${name}' is not in ${LOCKSTEP_ROOMS_FILE}: add its line there.")
  endif()
  string(REGEX REPLACE "^[a-z_]+ *:" "" below "${line}")
  string(REGEX REPLACE "#.*" "" below "${below}")
  string(REGEX MATCHALL "[a-z_]+" below "${below}")
  set(${result} ${below} PARENT_SCOPE)
endfunction()

function(lockstep_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "" "" "SOURCES;HEADERS;TESTS;FUZZ")
  lockstep_rooms_below(${name} below)
  list(TRANSFORM below PREPEND lockstep::)

  add_library(lockstep_${name} STATIC ${room_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_sources(lockstep_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${room_HEADERS})
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  target_link_libraries(lockstep_${name} PUBLIC ${below} Threads::Threads
                        PRIVATE fmt::fmt $<BUILD_INTERFACE:lockstep_compiler>)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOM_TARGETS lockstep_${name})

  if(LOCKSTEP_BUILD_TESTS)
    foreach(file IN LISTS room_TESTS)
      lockstep_test(${file} ROOM ${name})
    endforeach()
    foreach(file IN LISTS room_FUZZ)
      lockstep_fuzz(${file} ROOM ${name})
    endforeach()
  endif()
endfunction()

# lockstep_vector_sources(TARGET file…) adds sources with loops over memory to a target. Each is compiled once per
# instruction set of this architecture (kernels/dispatch.h). They are optimized in every build, because tests of large
# spans would otherwise take minutes. Vectors wider than the baseline's registers are passed to no other file, so their
# ABI does not matter. No code tests whether an operation trapped, and -fno-trapping-math lets GCC vectorize conversions
# of 16-bit floats.
function(lockstep_vector_sources target)
  set(sets baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets avx2 avx512)
  endif()
  set(flags_avx2 -mavx2)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  foreach(set IN LISTS sets)
    set(objects ${target}_${set})
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(${objects} PRIVATE lockstep_compiler)
    target_compile_definitions(${objects} PRIVATE LOCKSTEP_INSTRUCTION_SET=${set})
    target_compile_options(${objects} PRIVATE -O3 -fno-trapping-math -Wno-psabi ${flags_${set}})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()

# lockstep_processors(COUNT test…) declares how many processors each of these tests of this folder keeps busy: ctest
# starts no more tests at a time than the machine has processors for. The default is one; declare more if ranks compute
# at the same time. A waiting rank sleeps and does not count. Tests that are not built here may be named too. Tests with
# many processors start first: at the end they would wait for each other.
function(lockstep_processors count)
  foreach(test IN LISTS ARGN)
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES PROCESSORS ${count} COST ${count})
    endif()
  endforeach()
endfunction()

# Every rank of a test computes with one thread on every machine: LibTorch, OpenMP and the BLAS below them.
function(lockstep_one_thread_per_rank test)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
               OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1)
endfunction()

# What tools/gpu_check builds: the programs of the tests with the label "gpu", and those that print figures of a GPU.
add_custom_target(lockstep_gpu_programs)

# lockstep_on_gpu(test…) declares that these tests of this folder use the GPU: they get the label "gpu". Three of them run
# at a time, and they start early: processes take turns on a GPU, so that more of them would wait for each other and keep
# processors from other tests.
function(lockstep_on_gpu)
  foreach(test IN LISTS ARGN)
    get_property(number GLOBAL PROPERTY LOCKSTEP_NUM_GPU_TESTS)
    if(NOT number)
      set(number 0)
    endif()
    math(EXPR turn "${number} % 3")
    math(EXPR number "${number} + 1")
    set_property(GLOBAL PROPERTY LOCKSTEP_NUM_GPU_TESTS ${number})
    set_tests_properties(${test} PROPERTIES LABELS gpu RESOURCE_LOCK gpu_${turn} COST 4)
  endforeach()
endfunction()

# lockstep_test(FILE [GPU] [ROOM name] [NAME name] [LINK …] [LABELS …] [PROCESSORS n]) builds FILE as one GoogleTest
# program and adds it to ctest as NAME, by default the room and the name of FILE. GPU: see lockstep_on_gpu().
# The test's own watchdog (room testing) expires first; ctest's limit is for a hang of the watchdog.
function(lockstep_test file)
  if(LOCKSTEP_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 test "GPU" "ROOM;NAME;PROCESSORS" "LINK;LABELS")
  if(NOT test_PROCESSORS)
    set(test_PROCESSORS 1)
  endif()
  get_filename_component(name ${file} NAME_WE)
  if(test_NAME)
    set(name ${test_NAME})
  endif()
  if(test_ROOM)
    set(name ${test_ROOM}_${name})
    list(APPEND test_LINK lockstep::${test_ROOM})
  endif()
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE ${test_LINK} lockstep::testing GTest::gtest_main
                                        lockstep_compiler)
  if(test_ROOM)
    lockstep_rooms_below(${test_ROOM} below)
    list(TRANSFORM below PREPEND lockstep::)
  endif()
  list(APPEND below ${test_LINK})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${test_LABELS}" PROCESSORS ${test_PROCESSORS}
                                          COST ${test_PROCESSORS})
  lockstep_one_thread_per_rank(${name})
  if(test_GPU)
    lockstep_on_gpu(${name})
    add_dependencies(lockstep_gpu_programs ${name})
  endif()
  if("lockstep::torch" IN_LIST below)
    lockstep_sanitize_torch(${name})
  endif()
endfunction()

# LibTorch is not built with the thread sanitizer, which therefore reports races inside it that do not exist.
function(lockstep_sanitize_torch test)
  if(LOCKSTEP_SANITIZE MATCHES "thread")
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT TSAN_OPTIONS=ignore_noninstrumented_modules=1)
  endif()
endfunction()

# lockstep_fuzz(FILE ROOM name) builds the entry point LLVMFuzzerTestOneInput of FILE. With the fuzz
# preset libFuzzer runs it; all other builds replay tests/fuzz/corpus/<stem> as a test.
function(lockstep_fuzz file)
  cmake_parse_arguments(PARSE_ARGV 1 fuzz "" "ROOM" "")
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE lockstep::${fuzz_ROOM} lockstep_compiler)
  if(LOCKSTEP_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    return()
  endif()
  target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
  add_test(NAME ${name}_replay COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  set_tests_properties(${name}_replay PROPERTIES TIMEOUT 600)
endfunction()
