# The program's version is the Python package's: slime_version, and slime::program_version() (src/core/program_version.h).
file(STRINGS ${CMAKE_SOURCE_DIR}/python/slime/__init__.py slime_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = \"(.*)\"$" "\\1" slime_version "${slime_version}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/slime/__init__.py)
set(slime_version_source ${CMAKE_BINARY_DIR}/generated/program_version.cpp)
file(CONFIGURE OUTPUT ${slime_version_source} CONTENT
     "#include \"core/program_version.h\"\nnamespace slime {\nstd::string_view program_version() { return \"@slime_version@\"; }\n}\n" @ONLY)
