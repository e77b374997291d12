# Parquet, CSV, packed files: a shared library beside the program, so that the program does not wait for Arrow at start. Arrow is that of
# the pinned pyarrow wheel, which `./dev setup` unpacks: its C++ headers and libraries.
file(GLOB slime_pyarrow ${SLIME_DEPS}/pyarrow $ENV{SLIME_VENV}/lib/python3*/site-packages/pyarrow
     ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow)
if(slime_pyarrow)
  list(GET slime_pyarrow 0 slime_pyarrow)
endif()
set(SLIME_ARROW "${slime_pyarrow}" CACHE PATH "Folder of the pyarrow package; empty: JSON alone")
if(NOT SLIME_ARROW AND slime_pyarrow)  # it came after the first configuration
  set(SLIME_ARROW "${slime_pyarrow}" CACHE PATH "Folder of the pyarrow package; empty: JSON alone" FORCE)
endif()
file(GLOB slime_arrow_libraries ${SLIME_ARROW}/libarrow.so.* ${SLIME_ARROW}/libparquet.so.*)
if(SLIME_ARROW AND slime_arrow_libraries AND EXISTS ${SLIME_ARROW}/include/parquet/arrow/reader.h)
  add_library(slime_arrow SHARED ${CMAKE_SOURCE_DIR}/src/buffer/arrow/arrow_library.cpp
                                 ${CMAKE_SOURCE_DIR}/src/buffer/arrow/arrow_json.cpp
                                 ${CMAKE_SOURCE_DIR}/src/core/base64.cpp)
  target_include_directories(slime_arrow PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(slime_arrow SYSTEM PRIVATE ${SLIME_ARROW}/include)
  target_link_libraries(slime_arrow PRIVATE ${slime_arrow_libraries})
  set_target_properties(slime_arrow PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} BUILD_RPATH ${SLIME_ARROW})
  add_dependencies(slime slime_arrow)
  add_dependencies(slime_tests slime_arrow)
  if(SLIME_FUZZ)
    add_dependencies(fuzzers slime_arrow)
  endif()
else()
  message(STATUS "Arrow: not built; -DSLIME_ARROW=.../site-packages/pyarrow adds it")
endif()
