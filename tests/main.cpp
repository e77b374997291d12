#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "kernels/cpu/vector_math.h"
#include "kernels/gpu/for_tests.h"

namespace {

/// Tests find their fixtures from the clone's root (SLIME_SOURCE_DIR), wherever they are started.
/// On a machine that only got the binary they have to be started there. Golden cases are read
/// while tests are registered, so this comes before that.
__attribute__((constructor(101))) void enter_the_clone() {
  if (::chdir(SLIME_CLONE) != 0) return;  // it is not on this machine
}

}  // namespace

int main(int argc, char** argv) {
  // LibTorch logs collective operations for the whole process, under a lock for each process group
  // and not for all: ranks that are threads, as in these tests, now and then crash in there.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  ::testing::InitGoogleTest(&argc, argv);
  // LibTorch looks for its CUDA side once, when a test first draws random numbers, say: it must be
  // in the process by then.
  slime::kernels::why_no_gpu();
  slime::kernels::cpu::call_vector_math_once();
  return RUN_ALL_TESTS();
}
