# The version that `slime --version` says, which is the Python package's, and what a wheel carries of the build:
# `cmake --install build/release --component wheel --strip --prefix DIR` (tools/build/wheel/slime_wheel.py).
file(STRINGS ${CMAKE_SOURCE_DIR}/python/slime/__init__.py slime_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = \"(.*)\"$" "\\1" slime_version "${slime_version}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/slime/__init__.py)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/main.cpp PROPERTIES COMPILE_DEFINITIONS SLIME_VERSION="${slime_version}")

# In the package's folder bin the program finds LibTorch in the package torch beside it.
set(CMAKE_SKIP_INSTALL_RPATH OFF)
set_target_properties(slime PROPERTIES INSTALL_RPATH "\$ORIGIN/../../torch/lib:\$ORIGIN/../../nvidia/cu13/lib")
install(TARGETS slime slime_sandbox_program RUNTIME DESTINATION bin COMPONENT wheel)
if(TARGET slime_parquet)
  set_target_properties(slime_parquet PROPERTIES INSTALL_RPATH "\$ORIGIN/../../pyarrow")
  install(TARGETS slime_parquet LIBRARY DESTINATION bin COMPONENT wheel)
endif()
if(TARGET slime_cuda)
  install(TARGETS slime_cuda LIBRARY DESTINATION bin COMPONENT wheel)
endif()
