# slime_unicode_tables(OUT): a generated source with the rows of src/text/unicode/tables.txt, which python_text.cpp's tables lie
# next to. Python alone makes them, at configuration, and writes a file again only when it changes.
function(slime_unicode_tables out)
  set(script ${CMAKE_SOURCE_DIR}/tools/build/unicode_source.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script} ${CMAKE_SOURCE_DIR}/src/text/unicode/tables.txt)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${script} ${CMAKE_BINARY_DIR}/generated COMMAND_ERROR_IS_FATAL ANY)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/text/unicode/python_text.cpp PROPERTIES INCLUDE_DIRECTORIES
                              ${CMAKE_BINARY_DIR}/generated)
  set(${out} ${CMAKE_BINARY_DIR}/generated/unicode_tables.cpp PARENT_SCOPE)
endfunction()
