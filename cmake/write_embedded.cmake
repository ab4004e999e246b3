# Called by quarrel_embed: bytes as numbers, since a raw string would end at whatever delimiter a file may contain.
string(REPLACE "," ";" names "${NAMES}")
string(REPLACE "," ";" files "${FILES}")
set(text "#include \"${HEADER}\"\n\nnamespace quarrel::files {\n")
foreach(name file IN ZIP_LISTS names files)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  # A literal for every 64 bytes: compilers read short lines faster.
  string(REGEX REPLACE "(................................................................................................................................................................................................................................................................)" "\\1\"\n\"" bytes "${bytes}")
  file(SIZE ${file} size)
  string(APPEND text "const std::string_view ${name}(\n\"${bytes}\",\n${size});\n")
endforeach()
string(APPEND text "}\n")
file(WRITE ${OUTPUT} "${text}")
