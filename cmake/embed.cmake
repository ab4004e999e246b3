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

# quarrel_embed_folder(OUTPUT file.cpp HEADER folder/file.h FUNCTION files FOLDER folder): the same for all files of a folder,
# whatever they are called: quarrel::files::FUNCTION() is a table of their names and bytes.
function(quarrel_embed_folder)
  cmake_parse_arguments(ARG "" "OUTPUT;HEADER;FUNCTION;FOLDER" "" ${ARGN})
  file(GLOB_RECURSE paths CONFIGURE_DEPENDS RELATIVE ${ARG_FOLDER} ${ARG_FOLDER}/*)
  list(TRANSFORM paths PREPEND ${ARG_FOLDER}/ OUTPUT_VARIABLE files)
  list(JOIN paths "," names)
  list(JOIN files "," joined)
  add_custom_command(OUTPUT ${ARG_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${ARG_OUTPUT} -DHEADER=${ARG_HEADER} -DFUNCTION=${ARG_FUNCTION} -DNAMES=${names}
      -DFILES=${joined} -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    COMMENT "Files for the program" VERBATIM)
endfunction()
