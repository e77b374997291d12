#include "train/keep_freed_memory.h"

#include <malloc.h>

#include <limits>

namespace slime::train {

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 256 << 20);
#endif
}

}  // namespace slime::train
