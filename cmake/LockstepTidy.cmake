# `cmake --build --preset dev --target tidy` runs clang-tidy 14 over every source file of lockstep, except the code of pages.

find_program(LOCKSTEP_RUN_CLANG_TIDY NAMES run-clang-tidy-14)
if(LOCKSTEP_RUN_CLANG_TIDY AND NOT LOCKSTEP_FUZZ)
  add_custom_target(tidy
    COMMAND ${LOCKSTEP_RUN_CLANG_TIDY} -quiet -p ${PROJECT_BINARY_DIR}
            "^${PROJECT_SOURCE_DIR}/(src|models|cli|examples|benchmarks|tests(?!/snippets))/.*\\.cpp$$"
    USES_TERMINAL VERBATIM)
endif()
