# build/<preset>/generated/quarrel_version.h, rewritten only when the commit changes.
find_package(Git QUIET)
add_custom_target(quarrel_version
  COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DOUTPUT=${CMAKE_BINARY_DIR}/generated/quarrel_version.h
    -DVERSION=${PROJECT_VERSION} -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DGIT=${GIT_EXECUTABLE}
    -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/quarrel_version.h
  COMMENT "Version")
