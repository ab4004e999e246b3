# quarrel_embed(OUTPUT file.cpp HEADER folder/file.h NAMES kPage … FILES page.html …): at build time writes a C++ file that
# defines the std::string_views quarrel::files::kPage …, which the header declares, with the bytes of the files.
function(quarrel_embed)
  cmake_parse_arguments(ARG "" "OUTPUT;HEADER" "NAMES;FILES" ${ARGN})
  list(JOIN ARG_NAMES "," names)
  list(JOIN ARG_FILES "," files)
  add_custom_command(OUTPUT ${ARG_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${ARG_OUTPUT} -DHEADER=${ARG_HEADER} -DNAMES=${names} -DFILES=${files}
      -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${ARG_FILES} ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    COMMENT "Files for the program" VERBATIM)
endfunction()
