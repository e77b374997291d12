#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/gpu_for_tests.h"

int main(int argc, char** argv) {
  // LibTorch logs collective operations for the whole process, under a lock for each process group
  // and not for all: ranks that are threads, as in these tests, now and then crash in there.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  ::testing::InitGoogleTest(&argc, argv);
  // LibTorch looks for its CUDA side once, when a test first draws random numbers, say: it must be
  // in the process by then.
  slime::kernels::why_no_gpu();
  return RUN_ALL_TESTS();
}
