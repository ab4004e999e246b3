# The CUDA code is compiled by plain commands instead of CMake's own CUDA language: that asks for a toolkit laid out as
# NVIDIA's installer does it, and here it may also be the wheels that `scripts/setup cuda` unpacks into .cuda.
#
# Machine code for Hopper (sm_90a: wgmma and the like), PTX for everything from compute capability 8.0 on.
find_program(QUARREL_NVCC nvcc
  PATHS ${PROJECT_SOURCE_DIR}/.cuda/nvidia/cu13/bin /usr/local/cuda/bin
  DOC "CUDA's compiler, of version 12.4 or later")
if(NOT QUARREL_NVCC)
  message(FATAL_ERROR "QUARREL_CUDA is on and there is no nvcc: run scripts/setup cuda")
endif()
get_filename_component(cuda_nvcc ${QUARREL_NVCC} REALPATH)
get_filename_component(cuda_bin ${cuda_nvcc} DIRECTORY)
get_filename_component(cuda_root ${cuda_bin} DIRECTORY)

find_path(cuda_include cuda_runtime_api.h PATHS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include
  NO_DEFAULT_PATH NO_CACHE REQUIRED)
set(cuda_libraries ${cuda_root}/lib ${cuda_root}/lib64 ${cuda_root}/targets/x86_64-linux/lib)
find_library(cuda_runtime libcudart_static.a PATHS ${cuda_libraries} NO_DEFAULT_PATH NO_CACHE REQUIRED)
# The wheels have no libcublasLt.so, only the name with its version.
find_library(cuda_cublas NAMES libcublasLt.so.13 libcublasLt.so.12 libcublasLt.so PATHS ${cuda_libraries}
  NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_package(Threads REQUIRED)

add_library(quarrel_cuda_toolkit INTERFACE)
target_include_directories(quarrel_cuda_toolkit SYSTEM INTERFACE ${cuda_include})
target_link_libraries(quarrel_cuda_toolkit INTERFACE ${cuda_cublas} ${cuda_runtime} Threads::Threads dl rt)

set(cuda_common_flags -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr -DNDEBUG -gencode arch=compute_90a,code=sm_90a
  -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC -I${PROJECT_SOURCE_DIR}/src)
set(cuda_own_flags -gencode arch=compute_80,code=compute_80
  -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unused-parameter)

# quarrel_cuda_objects(VARIABLE a.cu … [FLAGS …])
# The object files of CUDA sources, for a library or a program of this folder. FLAGS are for sources that are mostly
# headers of others: those are compiled for Hopper alone, and nobody here answers for their warnings.
function(quarrel_cuda_objects variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FLAGS")
  if(arg_FLAGS)
    set(cuda_flags ${cuda_common_flags} ${arg_FLAGS} -w -Xcompiler -w)
  else()
    set(cuda_flags ${cuda_common_flags} ${cuda_own_flags})
  endif()
  set(objects "")
  foreach(source ${arg_UNPARSED_ARGUMENTS})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${cuda_nvcc} ${cuda_flags} -MD -MF ${object}.d -c
        ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPFILE ${object}.d
      COMMENT "CUDA ${name}"
      COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
