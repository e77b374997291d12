# What the program links: Debian's libraries and LibTorch from its wheel (docs/decisions/0001-dependencies.md).

find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS json url)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
# Static, so that a built program needs LibTorch and the C library alone.
find_library(SLIME_PCRE2 NAMES libpcre2-8.a REQUIRED)
find_library(SLIME_YAML NAMES libyaml-cpp.a REQUIRED)
find_library(SLIME_SSL NAMES libssl.a REQUIRED)
find_library(SLIME_CRYPTO NAMES libcrypto.a REQUIRED)  # OpenSSL 3

set(SLIME_TORCH ${SLIME_DEPS}/torch CACHE PATH "The torch folder of the unpacked wheel")
if(NOT EXISTS ${SLIME_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch is not in ${SLIME_TORCH}. `./dev setup` fetches it.")
endif()

# Where the runtime linker finds LibTorch and the two CUDA libraries that its CPU side links.
set(slime_rpath ${SLIME_TORCH}/lib ${SLIME_DEPS}/nvidia/cu13/lib)
set(CMAKE_BUILD_RPATH ${slime_rpath})
set(CMAKE_SKIP_INSTALL_RPATH ON)

# LibTorch brings GCC's OpenMP. Clang would bring a second one, so there loops are vectorised and stay on one thread.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(slime_openmp -fopenmp-simd)
else()
  set(slime_openmp -fopenmp)
endif()

# {fmt} is LibTorch's, in every file: its folder alone is for those that do not see LibTorch's other headers.
set(slime_fmt_include ${CMAKE_BINARY_DIR}/fmt_include)
file(MAKE_DIRECTORY ${slime_fmt_include})
file(CREATE_LINK ${SLIME_TORCH}/include/fmt ${slime_fmt_include}/fmt SYMBOLIC)
add_library(slime_fmt STATIC ${CMAKE_SOURCE_DIR}/cmake/fmt_library.cpp)
target_include_directories(slime_fmt SYSTEM PRIVATE ${slime_fmt_include})
target_compile_options(slime_fmt PRIVATE -fPIC)

add_library(slime_flags INTERFACE)
target_compile_options(slime_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas -Wno-missing-field-initializers -fno-math-errno -fPIC
                                             ${slime_openmp})
target_include_directories(slime_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(slime_flags INTERFACE slime_fmt Boost::json Boost::url)
target_compile_definitions(slime_flags INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_BEAST_USE_STD_STRING_VIEW PCRE2_CODE_UNIT_WIDTH=8)
# Left out: what stops the program anyway (null), what the address sanitizer sees too (object-size, pointer-overflow), and
# alignment, which together take as long to compile as everything else.
if(SLIME_SANITIZE)
  target_compile_options(slime_flags INTERFACE -fsanitize=${SLIME_SANITIZE} -fno-omit-frame-pointer -fno-sanitize=vptr,null,alignment,object-size,pointer-overflow)
  target_link_options(slime_flags INTERFACE -fsanitize=${SLIME_SANITIZE})
endif()
if(SLIME_FUZZ)
  # Where coroutines are split clang 14 cannot write the data of this check ("Cannot represent a difference across sections").
  target_compile_options(slime_flags INTERFACE -fno-sanitize=function)
  target_compile_options(slime_flags INTERFACE -fsanitize=fuzzer-no-link)  # so that libFuzzer sees what an input reaches
endif()

add_library(slime_torch_flags INTERFACE)
target_link_libraries(slime_torch_flags INTERFACE slime_flags)
target_include_directories(slime_torch_flags SYSTEM INTERFACE ${SLIME_TORCH}/include
                                                              ${SLIME_TORCH}/include/torch/csrc/api/include)

# What executables link.
add_library(slime_libraries INTERFACE)
target_link_libraries(
  slime_libraries
  INTERFACE slime_torch_flags
            ${SLIME_TORCH}/lib/libtorch_cpu.so
            ${SLIME_TORCH}/lib/libc10.so
            ${SLIME_TORCH}/lib/libgomp.so.1
            ${SLIME_PCRE2}
            ${SLIME_YAML}
            ${SLIME_SSL}
            ${SLIME_CRYPTO}
            Threads::Threads
            ${CMAKE_DL_LIBS})
find_program(SLIME_MOLD mold)
if(SLIME_MOLD)
  target_link_options(slime_libraries INTERFACE -fuse-ld=mold)
endif()
target_link_options(slime_libraries INTERFACE -Wl,--disable-new-dtags -Wl,--no-as-needed
                    -Wl,-rpath-link,${SLIME_TORCH}/lib:${SLIME_DEPS}/nvidia/cu13/lib)

# ccache, with results that other clones and later runs of CI can use: paths relative to the source folder, and the
# precompiled headers known by what went into them, because GCC's are not the same bytes twice.
find_program(SLIME_CCACHE ccache)
if(SLIME_CCACHE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} --version OUTPUT_VARIABLE slime_compiler)
  file(SHA256 ${SLIME_TORCH}/include/torch/headeronly/version.h slime_torch_version)
  file(READ ${CMAKE_SOURCE_DIR}/cmake/dependencies.cmake slime_build_text)
  set(slime_pch_text)
  foreach(header pch_plain pch_tensor pch_aten)
    file(READ ${CMAKE_SOURCE_DIR}/cmake/${header}.h text)
    string(APPEND slime_pch_text "${text}")
  endforeach()
  foreach(pch slime_pch_plain slime_pch_tensor slime_pch_aten)
    string(SHA256 sum "${pch} ${slime_compiler} ${slime_torch_version} ${slime_build_text} ${slime_pch_text}\
${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${SLIME_SANITIZE}")
    file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/${pch}.dir/cmake_pch.hxx.gch.sum ${sum})
  endforeach()
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${SLIME_CCACHE})
endif()

# Precompiled headers: without tensors, with the tensor type, with all of ATen.
file(WRITE ${CMAKE_BINARY_DIR}/pch_anchor.cpp "")
foreach(pch pch_plain pch_tensor pch_aten)
  add_library(slime_${pch} OBJECT ${CMAKE_BINARY_DIR}/pch_anchor.cpp)
  target_precompile_headers(slime_${pch} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${pch}.h)
endforeach()
target_link_libraries(slime_pch_plain PUBLIC slime_flags)
target_include_directories(slime_pch_plain SYSTEM PRIVATE ${slime_fmt_include})
target_link_libraries(slime_pch_tensor PUBLIC slime_torch_flags)
target_link_libraries(slime_pch_aten PUBLIC slime_torch_flags)
