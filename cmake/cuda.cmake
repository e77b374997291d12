# libslime_cuda.so: the GPU side, loaded at run time (docs/how/cuda.md). It is compiled by NVIDIA's compiler from
# its wheels ($SLIME_DEPS/cuda; `SLIME_CUDA=1 ./dev setup` puts it there) and linked with nothing: LibTorch, its CUDA side
# and the CUDA runtime are in the process when it is loaded. A machine without the compiler builds everything else.

option(SLIME_CUDA "Build libslime_cuda.so (./dev sets it)" OFF)
set(SLIME_CUDA_ARCHITECTURES 90a CACHE STRING "GPUs to compile for, separated by commas: 80, 89, 90a, 100a")
set(slime_cuda_root ${SLIME_DEPS}/cuda)
set(slime_nvcc ${slime_cuda_root}/bin/nvcc)

if(SLIME_CUDA AND NOT EXISTS ${slime_nvcc})
  message(FATAL_ERROR "SLIME_CUDA=ON, but there is no ${slime_nvcc}. `SLIME_CUDA=1 ./dev setup` fetches it.")
endif()

# Sources of the program that libraries behind kernels::Gpu have too: the program offers them none of its functions.
set(slime_neutral_gpu_sources
    adapter_pairs.cpp cpu/reference.cpp device.cpp gpu/attention_levels.cpp gpu/exact_units.cpp gpu/graph_pieces.cpp
    gpu/latent_pairs.cpp gpu/ordered_levels.cpp gpu/sparse.cpp gpu/windowed_rows.cpp matrix.cpp matrix_formats.cpp)
list(TRANSFORM slime_neutral_gpu_sources PREPEND ${CMAKE_SOURCE_DIR}/src/kernels/)

function(slime_cuda_library)
  set(includes -I${CMAKE_SOURCE_DIR}/src)
  foreach(folder cccl/libcudacxx/include cccl/cub cccl/thrust include)
    list(APPEND includes -isystem ${slime_cuda_root}/flashinfer/${folder})
  endforeach()
  set(targets "")
  string(REPLACE "," ";" architectures "${SLIME_CUDA_ARCHITECTURES}")
  foreach(architecture ${architectures})
    list(APPEND targets -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  set(flags -std=c++20 -O3 --expt-relaxed-constexpr -diag-suppress 177 -Xcompiler -fPIC,-fvisibility=hidden ${targets} ${includes})

  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  set(objects "")
  foreach(source ${kernels})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${slime_nvcc} -c ${flags} -MD -MF ${object}.d -MT ${object} ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "Compiling ${name}.cu for sm_${SLIME_CUDA_ARCHITECTURES}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()

  # The host side: ATen meets CUDA here. ReferenceDevice is what CudaDevice falls back to.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  add_library(slime_cuda SHARED ${sources} ${slime_neutral_gpu_sources} ${slime_interface_source} ${objects})
  target_precompile_headers(slime_cuda REUSE_FROM slime_pch_aten)
  target_compile_options(slime_cuda PRIVATE -fvisibility=hidden)
  target_compile_definitions(slime_cuda PRIVATE SLIME_CUDA_ARCHITECTURES="${SLIME_CUDA_ARCHITECTURES}")
  target_include_directories(slime_cuda SYSTEM PRIVATE ${slime_cuda_root}/include ${slime_cuda_root}/cudnn/include)
  target_link_libraries(slime_cuda PRIVATE slime_torch_flags)
  set_target_properties(slime_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINKER_LANGUAGE CXX)
  # The program offers none of its functions: what is missing here would be found on a machine with a GPU.
  add_custom_command(TARGET slime_cuda POST_BUILD
    COMMAND sh -c "! nm -D --undefined-only --demangle $<TARGET_FILE:slime_cuda> | grep slime::" VERBATIM)

  # Products without LibTorch and cuBLAS, for `./dev sanitize gpu`. They run by themselves on any machine with a driver and
  # glibc.
  foreach(name wide_product gated_product)
    set(program ${CMAKE_BINARY_DIR}/cuda/${name}s)
    set(program_sources ${CMAKE_SOURCE_DIR}/tests/gpu/${name}s.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/products/tile_map.cpp
                        ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${program}
      COMMAND ${slime_nvcc} ${flags} ${program_sources} -o ${program} -Xcompiler -static-libstdc++,-static-libgcc -ldl
      DEPENDS ${program_sources}
      COMMENT "Linking cuda/${name}s"
      VERBATIM)
    add_custom_target(slime_${name}s DEPENDS ${program})
    add_dependencies(slime_${name}s slime_cuda)
  endforeach()

  add_dependencies(slime slime_cuda)
  add_dependencies(slime-bench slime_cuda)
  add_dependencies(slime_tests slime_cuda)
endfunction()
