# Editing of lines on a terminal (src/chat/line_source.cpp): Debian's libedit and what it needs, static, so that a built program
# asks for no further library. Not among cmake/dependencies.cmake, which every cached object depends on.

find_library(SLIME_EDIT NAMES libedit.a REQUIRED)
find_library(SLIME_TINFO NAMES libtinfo.a libncurses.a REQUIRED)
find_library(SLIME_BSD NAMES libbsd.a REQUIRED)
find_library(SLIME_MD NAMES libmd.a REQUIRED)
add_library(slime_line_editing INTERFACE)
target_link_libraries(slime_line_editing INTERFACE ${SLIME_EDIT} ${SLIME_TINFO} ${SLIME_BSD} ${SLIME_MD})
