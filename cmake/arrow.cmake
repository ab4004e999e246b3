# Arrow 23 with Flight: an installed one, or the shared libraries and headers inside the wheel that `scripts/setup flight`
# puts into .venv-flight. The wheel has no files for CMake; gRPC and the like are hidden inside its libraries.
#
# `quarrel_arrow` is what to link; `quarrel_arrow_folder` where the libraries lie; `quarrel_arrow_libraries` those that an
# installation has to bring along.
add_library(quarrel_arrow INTERFACE)
set(quarrel_arrow_libraries "")

find_package(ArrowFlight 23 CONFIG QUIET)
if(ArrowFlight_FOUND AND ArrowFlight_VERSION VERSION_LESS 24)
  target_link_libraries(quarrel_arrow INTERFACE ArrowFlight::arrow_flight_shared)
  get_target_property(arrow_file ArrowFlight::arrow_flight_shared LOCATION)
  get_filename_component(quarrel_arrow_folder ${arrow_file} DIRECTORY)
else()
  find_path(QUARREL_ARROW include/arrow/flight/client.h
    PATHS ${PROJECT_SOURCE_DIR}/.venv-flight/lib/python3.10/site-packages/pyarrow
      ${PROJECT_SOURCE_DIR}/.venv-flight/lib/python3.11/site-packages/pyarrow
      ${PROJECT_SOURCE_DIR}/.venv-flight/lib/python3.12/site-packages/pyarrow
      ${PROJECT_SOURCE_DIR}/.venv-flight/lib/python3.13/site-packages/pyarrow
      ${PROJECT_SOURCE_DIR}/.venv-flight/lib/python3.14/site-packages/pyarrow
    NO_DEFAULT_PATH
    DOC "The folder pyarrow of an unpacked wheel of version 23")
  if(NOT QUARREL_ARROW)
    message(FATAL_ERROR "QUARREL_FLIGHT is on and there is no Arrow 23 with Flight: run scripts/setup flight")
  endif()
  set(quarrel_arrow_folder ${QUARREL_ARROW})
  file(STRINGS ${QUARREL_ARROW}/include/arrow/util/config.h arrow_version REGEX "define ARROW_VERSION_MAJOR 23$")
  if(NOT arrow_version)
    message(FATAL_ERROR "Arrow in ${QUARREL_ARROW} is not of version 23")
  endif()
  foreach(name arrow arrow_flight)
    add_library(quarrel_lib${name} SHARED IMPORTED)
    set_target_properties(quarrel_lib${name} PROPERTIES IMPORTED_LOCATION ${QUARREL_ARROW}/lib${name}.so.2300
      INTERFACE_INCLUDE_DIRECTORIES ${QUARREL_ARROW}/include)
    list(APPEND quarrel_arrow_libraries ${QUARREL_ARROW}/lib${name}.so.2300)
  endforeach()
  target_link_libraries(quarrel_arrow INTERFACE quarrel_libarrow_flight quarrel_libarrow)
endif()
