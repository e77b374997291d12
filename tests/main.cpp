#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // LibTorch logs collective operations for the whole process, under a lock for each process group
  // and not for all: ranks that are threads, as in these tests, now and then crash in there.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
