# xgrammar: the engine of src/text/grammar, a static library of the C++ sources of its archive, unmodified but for one condition
# (docs/decisions/0124-grammars.md). Its own CMakeLists.txt wants Python.

set(SLIME_XGRAMMAR ${SLIME_DEPS}/xgrammar CACHE PATH "The unpacked sources of xgrammar")
if(NOT EXISTS ${SLIME_XGRAMMAR}/include/xgrammar/xgrammar.h)
  message(FATAL_ERROR "xgrammar is not in ${SLIME_XGRAMMAR}. `./dev setup` fetches it.")
endif()

file(GLOB_RECURSE slime_xgrammar_sources ${SLIME_XGRAMMAR}/cpp/*.cc)
list(FILTER slime_xgrammar_sources EXCLUDE REGEX "/tvm_ffi/")
# 0.2.9 takes a token that holds the one before it anywhere for one that begins with it, and refuses both together.
set(slime_xgrammar_mended ${CMAKE_BINARY_DIR}/generated/xgrammar_tokenizer_info.cc)
set(slime_xgrammar_wrong "(token.find(prefix_stack.top().first) == std::string::npos)")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SLIME_XGRAMMAR}/cpp/tokenizer_info.cc)
file(READ ${SLIME_XGRAMMAR}/cpp/tokenizer_info.cc slime_xgrammar_text)
string(FIND "${slime_xgrammar_text}" "${slime_xgrammar_wrong}" slime_xgrammar_at)
if(slime_xgrammar_at EQUAL -1)
  message(FATAL_ERROR "xgrammar's tokenizer_info.cc is another one than cmake/xgrammar.cmake mends.")
endif()
string(REPLACE "${slime_xgrammar_wrong}" "(token.rfind(prefix_stack.top().first, 0) != 0)" slime_xgrammar_text "${slime_xgrammar_text}")
file(CONFIGURE OUTPUT ${slime_xgrammar_mended} CONTENT "${slime_xgrammar_text}" @ONLY)
list(FILTER slime_xgrammar_sources EXCLUDE REGEX "/cpp/tokenizer_info\\.cc$")
list(APPEND slime_xgrammar_sources ${slime_xgrammar_mended})
add_library(xgrammar STATIC ${slime_xgrammar_sources})
target_include_directories(xgrammar SYSTEM PUBLIC ${SLIME_XGRAMMAR}/include ${SLIME_XGRAMMAR}/3rdparty/dlpack/include
                                           PRIVATE ${SLIME_XGRAMMAR}/3rdparty/picojson ${SLIME_XGRAMMAR}/cpp)
# What it would write to standard error goes to src/text/grammar/xgrammar_log.cpp.
target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
target_compile_options(xgrammar PRIVATE -fPIC -w)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Of C++20 Clang instantiates the constexpr members of std::vector where the elements' type is not complete yet.
  set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
endif()
if(SLIME_SANITIZE)
  # Its memory and its threads are watched; what it does with numbers is its own affair.
  target_compile_options(xgrammar PRIVATE -fsanitize=${SLIME_SANITIZE} -fno-sanitize=undefined -fno-omit-frame-pointer)
endif()
if(SLIME_FUZZ)
  target_compile_options(xgrammar PRIVATE -fsanitize=fuzzer-no-link)
endif()
