# What the wheels carry of the build: `cmake --install build/release --component wheel --prefix DIR`, or wheel_cuda
# (tools/build/wheel/slime_wheel.py).
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/main.cpp PROPERTIES COMPILE_DEFINITIONS SLIME_VERSION="${slime_version}")

# Every program and library of this build asks for no newer libstdc++ than GCC 11's.
add_library(slime_older_libstdcxx STATIC ${CMAKE_SOURCE_DIR}/cmake/older_libstdcxx.cpp)
target_compile_options(slime_older_libstdcxx PRIVATE -fPIC)
target_link_options(slime_older_libstdcxx INTERFACE -Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
target_link_libraries(slime_flags INTERFACE slime_older_libstdcxx)

# In the package's folder bin the program finds its libraries in lib beside it. The CUDA runtime, which LibTorch's CPU side
# links, and LibTorch's CUDA side are packages beside this one.
set(CMAKE_SKIP_INSTALL_RPATH OFF)
set_target_properties(slime PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib:\$ORIGIN/../../torch/lib:\$ORIGIN/../../nvidia/cu13/lib")
install(TARGETS slime slime_sandbox_program RUNTIME DESTINATION bin COMPONENT wheel)
install(FILES ${SLIME_TORCH}/lib/libtorch_cpu.so ${SLIME_TORCH}/lib/libc10.so ${SLIME_TORCH}/lib/libgomp.so.1 DESTINATION lib COMPONENT wheel)
if(TARGET slime_arrow)
  set_target_properties(slime_arrow PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib")
  install(TARGETS slime_arrow LIBRARY DESTINATION bin COMPONENT wheel)
  install(FILES ${slime_arrow_libraries} DESTINATION lib COMPONENT wheel)
endif()
if(TARGET slime_cuda)
  install(TARGETS slime_cuda LIBRARY DESTINATION bin COMPONENT wheel_cuda)
endif()
