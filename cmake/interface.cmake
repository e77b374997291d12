# The interface between the program and libslime_cuda.so, as a hash of the headers that both compile: a library of another
# build is refused instead of called with types of another layout (kernels/gpu/interface.h).

# Appends to OUT the header (relative to src) and those that it includes.
function(slime_header_closure out header)
  set(headers ${${out}})
  if(NOT header IN_LIST headers)
    list(APPEND headers ${header})
    file(STRINGS ${CMAKE_SOURCE_DIR}/src/${header} includes REGEX "^#include \"")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      slime_header_closure(headers ${included})
    endforeach()
  endif()
  set(${out} ${headers} PARENT_SCOPE)
endfunction()

# OUT: a generated source with kernels::interface_hash().
function(slime_interface out)
  set(headers)
  foreach(header kernels/gpu/gpu.h kernels/gpu/peer_collectives.h kernels/block_chain.h kernels/cuda/library.h)
    slime_header_closure(headers ${header})
  endforeach()
  list(SORT headers)
  file(SHA256 ${SLIME_TORCH}/include/torch/headeronly/version.h sums)
  foreach(header IN LISTS headers)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${header})
    file(SHA256 ${CMAKE_SOURCE_DIR}/src/${header} sum)
    string(APPEND sums " ${header} ${sum}")
  endforeach()
  string(SHA256 hash "${sums}")
  string(SUBSTRING ${hash} 0 16 hash)
  set(generated ${CMAKE_BINARY_DIR}/generated/kernels_interface.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
       "#include \"kernels/gpu/interface.h\"\n\nconst char* slime::kernels::interface_hash() { return \"${hash}\"; }\n")
  set(${out} ${generated} PARENT_SCOPE)
endfunction()
