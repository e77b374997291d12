#pragma once

/// Segments of a packed batch (model/token_batch.h explains and draws them).

#include <cstdint>
#include <vector>

namespace slime::kernels {

struct Segment {
  int64_t begin = 0;  // rows [begin, end) of T; never empty
  int64_t end = 0;
  int32_t parent = -1;  // index of an earlier segment, or -1
  /// False: its tokens are only looked at. Attention returns zeros for their rows, and their queries
  /// get no gradient.
  bool has_queries = true;
};

}  // namespace slime::kernels
