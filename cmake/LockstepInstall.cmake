# `cmake --install`: the rooms, their headers, the command, and the files for find_package(lockstep).

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY LOCKSTEP_ROOM_TARGETS)
list(REMOVE_ITEM rooms lockstep_testing)  # for lockstep's own tests
install(TARGETS ${rooms} lockstep_lockstep EXPORT lockstepTargets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET lockstep)
  get_property(programs GLOBAL PROPERTY LOCKSTEP_PROGRAMS)
  # Programs find each other relative to their own path, so the prefix can be moved. LibTorch is not installed.
  set_target_properties(${programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${programs})
  install(FILES ${PROJECT_SOURCE_DIR}/cli/bench/comm/gloo.py
          DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep RENAME bench_comm_gloo.py)
  install(FILES ${PROJECT_SOURCE_DIR}/src/lockstep/metrics/lockstep_metrics.py
          DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
endif()
if(TARGET lockstep-bench-mpi)
  set_target_properties(lockstep-bench-mpi PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS lockstep-bench-mpi OPTIONAL)  # a peer to compare with, not part of `make train`
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
              ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LockstepTorch.cmake
        DESTINATION ${package_dir})
