# One place for how our own code is compiled: `quarrel_flags` is linked by every library and program of the tree.
# Kernels ask for -O3 themselves; elsewhere it buys nothing but build time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# What is never hot: commands, tests, everything under a sanitizer. GCC compiles it a third faster than at -O1, and as fast
# as at -O0, whose code is much slower.
set(quarrel_quick -Og)

add_library(quarrel_flags INTERFACE)
target_compile_options(quarrel_flags INTERFACE
  -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor -Werror
  # With clang, the stable_sort of GCC's library trips over a function it has deprecated itself.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  # GCC 12 sees overlapping copies and unset members inside its own std::string and std::variant.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  # A product and a sum stay two roundings unless the code says fma: results must not depend on what the compiler fuses.
  -ffp-contract=off
  $<$<CONFIG:Debug>:${quarrel_quick}>)
target_include_directories(quarrel_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)

if(QUARREL_SANITIZE)
  target_compile_options(quarrel_flags INTERFACE -fsanitize=${QUARREL_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  target_link_options(quarrel_flags INTERFACE -fsanitize=${QUARREL_SANITIZE})
  # A target may do without some checks of its own code: they take up to a quarter of the time to compile.
  target_compile_options(quarrel_flags INTERFACE
    $<$<BOOL:$<TARGET_PROPERTY:QUARREL_UNCHECKED>>:-fno-sanitize=$<TARGET_PROPERTY:QUARREL_UNCHECKED>>)
endif()
# Rooms that never see a pointer into bytes from outside: no pointer of theirs can be misaligned, and one that is null ends
# the test in any case.
set(quarrel_rooms_without_bytes api app engine flight sched server session store)
if(QUARREL_FUZZ)
  target_compile_options(quarrel_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Optimisation by profile, with GCC. Object files are named in the profile by their path below the build folder, so that
# one build can use what another one counted. Code that the training never reached is compiled as if there were no
# profile: it is what other models and other machines need, not what nobody needs.
if(QUARREL_PGO AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "QUARREL_PGO needs GCC")
elseif(QUARREL_PGO STREQUAL "train")
  # Counters are not atomic: threads that share them in a kernel's inner loop would crawl. The training has one thread.
  set(profile_flags -fprofile-generate=${QUARREL_PROFILE} -fprofile-update=single)
elseif(QUARREL_PGO STREQUAL "use")
  set(profile_flags -fprofile-use=${QUARREL_PROFILE} -fprofile-partial-training -Wno-missing-profile -Wno-error=coverage-mismatch
    -Wno-stringop-overflow)  # seen by GCC 12 in std::string once counts steer its inlining
elseif(QUARREL_PGO)
  message(FATAL_ERROR "QUARREL_PGO is '${QUARREL_PGO}': it can be train or use")
endif()
if(QUARREL_PGO)
  list(APPEND profile_flags -fprofile-prefix-path=${CMAKE_BINARY_DIR})
  target_compile_options(quarrel_flags INTERFACE ${profile_flags})
  target_link_options(quarrel_flags INTERFACE ${profile_flags})
endif()

# The headers that most files include take a second or two of each file's time to compile. They are read once, into a
# precompiled header that all targets with the same flags share: `quarrel_headers` at -O2, `quarrel_quick_headers` for what
# is never hot. Only GCC takes one header for files with other macros than its own; under a sanitizer each folder has other
# flags; and a folder that goes into a module too is compiled with -fPIC, so it has none. Every file must still include what
# it uses: builds without QUARREL_TOGETHER have no such header and check that.
set(quarrel_precompiled OFF)
if(QUARREL_TOGETHER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT QUARREL_PGO AND NOT QUARREL_SANITIZE)
  set(quarrel_precompiled ON)
endif()

# quarrel_headers(NAME OPTIONS -Og … HEADERS <a> …): makes a set of precompiled headers, with an empty file.
function(quarrel_headers name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE quarrel_flags fmt::fmt nlohmann_json::nlohmann_json)
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# quarrel_use_headers(TARGET HEADERS [a.cpp …]): a target's files are compiled with a set of precompiled headers, but for
# those named, which have flags of their own.
function(quarrel_use_headers target headers)
  if(quarrel_precompiled)
    target_precompile_headers(${target} REUSE_FROM ${headers})
    set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# quarrel_library(NAME SOURCES a.cpp … LINKS quarrel_base … PRIVATE_LINKS fmt::fmt …)
# A folder is a library and links only what it may, so the linker keeps the layers apart.
function(quarrel_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC quarrel_flags ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME room)
  if(room IN_LIST quarrel_rooms_without_bytes)
    set_target_properties(${name} PROPERTIES QUARREL_UNCHECKED "null,alignment,object-size,vptr")
  endif()
endfunction()

# quarrel_together(LIBRARY SUBJECT a.cpp b.cpp …): compiles these files of a library as one. Most of what a file costs is
# the headers that all of them include, so a clean build takes less than half of the time; a change compiles its
# neighbours too. Names in their unnamed namespaces must differ. Without QUARREL_TOGETHER (as in the presets debug and
# lint) each file is compiled by itself.
function(quarrel_together library subject)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${subject})
  set_target_properties(${library} PROPERTIES UNITY_BUILD ${QUARREL_TOGETHER} UNITY_BUILD_MODE GROUP)
  # GCC takes a file that is included for a header, and frames of coroutines for what headers should not have.
  target_compile_options(${library} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
