# libslime_hip.so, which the program loads for --device hip (docs/rocm.md): kernels of cmake/portable_kernels.cmake by clang, the host
# side by the compiler of everything else. Nothing depends on it: `./dev hip` installs what it needs and makes it.

set(SLIME_HIP_ARCHITECTURES gfx942,gfx950 CACHE STRING "AMD GPUs that libslime_hip.so has machine code for")
set(SLIME_HIP_TORCH "" CACHE PATH "The torch folder of a LibTorch for ROCm; empty: stubs of its headers, for checks")

set(SLIME_HIP_ROCM "" CACHE PATH "A ROCm whose compiler and headers are taken; empty: those that ./dev hip installs")

if(SLIME_HIP_ROCM)
  set(slime_amd_root ${SLIME_HIP_ROCM})
  set(slime_hip_clang ${SLIME_HIP_ROCM}/llvm/bin/clang++)
  set(slime_hip_bundler ${SLIME_HIP_ROCM}/llvm/bin/clang-offload-bundler)
else()
  set(slime_amd_root ${SLIME_DEPS}/amd)  # tools/build/amd_root.sh
  set(slime_hip_clang clang++-22)
  set(slime_hip_bundler clang-offload-bundler-22)
endif()

# Host sources of src/kernels/cuda that HIP has others of (src/kernels/hip), or has no kernels for.
set(slime_host_of_cuda_alone
    attention/attend_exact attention/attend_tiles attention/packed_attention cuda_gpu_peers driver_table library
    peers/cuda_peer_collectives products/batch_invariant_linear products/linear products/tile_map torch_side)

# OUT: an object with the kernels of src/kernels/cuda/NAME.cu for each processor. The code objects lie beside it, for checks. clang
# writes what a source includes for the host's pass alone, so one command makes all.
function(slime_hip_kernel out name)
  string(REPLACE "," ";" processors "${SLIME_HIP_ARCHITECTURES}")
  get_filename_component(unit ${name} NAME)
  set(source ${CMAKE_SOURCE_DIR}/src/kernels/cuda/${name}.cu)
  set(folder ${CMAKE_BINARY_DIR}/hip)
  set(object ${folder}/${unit}.o)
  set(compile ${slime_hip_clang} -x hip --rocm-path=${slime_amd_root} -std=c++20 -w -I${CMAKE_SOURCE_DIR}/src -c ${source})
  set(commands COMMAND ${CMAKE_COMMAND} -E make_directory ${folder})
  set(targets host-x86_64-unknown-linux-gnu)
  set(inputs -input=/dev/null)
  foreach(processor IN LISTS processors)
    set(code ${folder}/${unit}.${processor}.co)
    # The linker within refuses undefined symbols.
    list(APPEND commands COMMAND ${compile} --offload-arch=${processor} --cuda-device-only --no-gpu-bundle-output -O3 -o ${code})
    list(APPEND targets hipv4-amdgcn-amd-amdhsa--${processor})
    list(APPEND inputs -input=${code})
  endforeach()
  list(JOIN targets "," targets)
  add_custom_command(
    OUTPUT ${object}
    ${commands}
    COMMAND ${slime_hip_bundler} -type=o -bundle-align=4096 -targets=${targets} ${inputs} -output=${folder}/${unit}.hipfb
    COMMAND ${compile} --cuda-host-only -O1 -fPIC -fvisibility=hidden -Xclang -fcuda-include-gpubinary -Xclang ${folder}/${unit}.hipfb
            -MD -MF ${object}.d -MT ${object} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "Compiling ${unit}.cu for ${SLIME_HIP_ARCHITECTURES}"
    VERBATIM)
  set(${out} ${object} PARENT_SCOPE)
endfunction()

function(slime_hip_library)
  set(objects)
  foreach(name IN LISTS slime_portable_kernels)
    slime_hip_kernel(object ${name})
    list(APPEND objects ${object})
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/kernels/hip/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(TRANSFORM slime_host_of_cuda_alone REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/kernels/cuda/\\1.cpp" OUTPUT_VARIABLE others)
  list(REMOVE_ITEM sources ${others})
  slime_join(units slime_hip 12 ${sources})
  add_library(slime_hip SHARED EXCLUDE_FROM_ALL ${units} ${slime_neutral_gpu_sources} ${slime_interface_source} ${objects})
  # HIP's functions are declared nodiscard, also those that give back.
  target_compile_options(slime_hip PRIVATE -fvisibility=hidden -Wno-unused-result)
  target_compile_definitions(slime_hip PRIVATE __HIP_PLATFORM_AMD__ SLIME_HIP_ARCHITECTURES="${SLIME_HIP_ARCHITECTURES}")
  target_include_directories(slime_hip BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/src/kernels/hip/include)
  target_include_directories(slime_hip SYSTEM PRIVATE ${slime_amd_root}/include)
  if(SLIME_HIP_TORCH)
    target_include_directories(slime_hip SYSTEM BEFORE PRIVATE ${SLIME_HIP_TORCH}/include)
  else()
    target_compile_definitions(slime_hip PRIVATE SLIME_TORCH_STUBS)
    target_include_directories(slime_hip SYSTEM PRIVATE ${CMAKE_SOURCE_DIR}/tests/hip/torch_stubs)
  endif()
  target_link_libraries(slime_hip PRIVATE slime_torch_flags)
  # clang-tidy looks at these sources as CUDA has them.
  set_target_properties(slime_hip PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINKER_LANGUAGE CXX EXPORT_COMPILE_COMMANDS OFF)

  # What of it runs on any device is tested on the CPU.
  add_library(slime_hip_on_cpu OBJECT ${CMAKE_SOURCE_DIR}/src/kernels/hip/fused_attention.cpp
                                      ${CMAKE_SOURCE_DIR}/src/kernels/hip/products.cpp)
  target_link_libraries(slime_hip_on_cpu PRIVATE slime_torch_flags)
  set_property(GLOBAL APPEND PROPERTY SLIME_TEST_OBJECTS slime_hip_on_cpu)
endfunction()
