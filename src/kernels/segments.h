#pragma once

/// Segments of a packed batch (model/token_batch.h explains and draws them).

#include <cstdint>
#include <vector>

namespace slime::kernels {

struct Segment {
  int64_t begin = 0;  // rows [begin, end) of T; never empty
  int64_t end = 0;
  int32_t parent = -1;  // index of an earlier segment, or -1
};

}  // namespace slime::kernels
