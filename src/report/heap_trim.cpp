#include "report/heap_trim.h"

#include <malloc.h>

namespace slime::report {

void HeapTrim::after_step(double resident_bytes) {
  if (baseline_bytes_ == 0) {
    baseline_bytes_ = resident_bytes;
  } else if (resident_bytes > 1.02 * baseline_bytes_) {
    malloc_trim(0);
    baseline_bytes_ = 0;
  }
}

}  // namespace slime::report
