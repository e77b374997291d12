# Warnings of this project's files are errors where the compiler is the one that every change is built with, Debian 12's GCC 12,
# and optimises as a release does: other compilers, and sanitizers, warn of other things, and a newcomer's build should not stop at
# one of them.
set(slime_warnings_are_errors OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\." AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT SLIME_SANITIZE)
  set(slime_warnings_are_errors ON)
endif()
option(SLIME_WARNINGS_ARE_ERRORS "Stop at a warning in this project's files" ${slime_warnings_are_errors})

# What GCC 12 says wrongly: of moved strings (its bug 105651), of the frames of coroutines.
set(slime_warning_options)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND slime_warning_options -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread
       -Wno-subobject-linkage -Wno-mismatched-new-delete)
endif()
if(SLIME_WARNINGS_ARE_ERRORS)
  # What depends on what the optimiser happened to inline stays a warning.
  list(APPEND slime_warning_options -Werror -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object -Wno-error=nonnull
       -Wno-error=use-after-free -Wno-error=dangling-pointer)
endif()
target_compile_options(slime_flags INTERFACE ${slime_warning_options})

# GCC frees memory when it has 1 GB, not from 0.1 GB on: 5 to 15 % of the time of a unit, none of which needs more.
set(slime_memory_options)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND slime_memory_options --param=ggc-min-heapsize=1000000)
endif()
target_compile_options(slime_flags INTERFACE ${slime_memory_options})

# The same object comes out with and without them, so a compiler cache need not tell them apart.
set(slime_ignored_options ${slime_warning_options} ${slime_memory_options})
if(SLIME_CCACHE AND slime_ignored_options)
  list(JOIN slime_ignored_options " " slime_ignored)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env "CCACHE_IGNOREOPTIONS=${slime_ignored}" ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
