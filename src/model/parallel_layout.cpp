#include "model/parallel_layout.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::model {

Slice tensor_parallel_slice(const ParallelLayout& layout, int dim, int64_t size) {
  if (layout.tp == 1) return {};
  if (size % layout.tp != 0) {
    throw ConfigError(
        fmt::format("tensor parallelism of {} does not divide a dimension of {}", layout.tp, size));
  }
  const int64_t part = size / layout.tp;
  return {.dim = dim, .begin = layout.tp_rank * part, .end = (layout.tp_rank + 1) * part};
}

}  // namespace slime::model
