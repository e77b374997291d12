# Parquet, where the pyarrow package is: its wheel has Arrow's C++ headers and libraries. A shared library beside the
# program, so that the program neither needs Arrow nor waits for it at start.
file(GLOB slime_pyarrow ${SLIME_DEPS}/pyarrow $ENV{SLIME_VENV}/lib/python3*/site-packages/pyarrow
     ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow)
if(slime_pyarrow)
  list(GET slime_pyarrow 0 slime_pyarrow)
endif()
set(SLIME_ARROW "${slime_pyarrow}" CACHE PATH "Folder of the pyarrow package; empty: no Parquet")
file(GLOB slime_arrow_libraries ${SLIME_ARROW}/libarrow.so.* ${SLIME_ARROW}/libparquet.so.*)
if(SLIME_ARROW AND slime_arrow_libraries AND EXISTS ${SLIME_ARROW}/include/parquet/arrow/reader.h)
  add_library(slime_parquet SHARED ${CMAKE_SOURCE_DIR}/src/buffer/parquet/parquet_library.cpp)
  target_include_directories(slime_parquet PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(slime_parquet SYSTEM PRIVATE ${SLIME_ARROW}/include)
  target_link_libraries(slime_parquet PRIVATE ${slime_arrow_libraries})
  set_target_properties(slime_parquet PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} BUILD_RPATH ${SLIME_ARROW})
else()
  message(STATUS "Parquet: not built; -DSLIME_ARROW=.../site-packages/pyarrow adds it")
endif()
