#include "core/out_of_memory.h"

#include <gtest/gtest.h>

#include <new>

#include "core/error.h"

namespace slime {
namespace {

TEST(OutOfMemory, IsKnownFromWhoeverReportsIt) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(OutOfMemory("a step of the engine")));
  for (const char* text :
       {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...",
        "workspace of matrix products: out of memory",
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 17179869184 bytes.",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"})
    EXPECT_TRUE(is_out_of_memory(std::runtime_error(text))) << text;
}

TEST(OutOfMemory, OtherErrorsAreOtherErrors) {
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("an illegal memory access was encountered")));
  EXPECT_FALSE(is_out_of_memory(ConfigError("--kv-cache-gb: should not be negative")));
}

}  // namespace
}  // namespace slime
