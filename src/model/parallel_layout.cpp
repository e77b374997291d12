#include "model/parallel_layout.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::model {

Slice tensor_parallel_slice(const comm::Mesh& mesh, int dim, int64_t size) {
  const int64_t tp = mesh.sizes().tp, rank = mesh.at().tp;
  if (tp == 1) return {};
  if (size % tp != 0) {
    throw ConfigError(
        fmt::format("tensor parallelism of {} does not divide a dimension of {}", tp, size));
  }
  const int64_t size_of_slice = size / tp;
  return {.dim = dim, .begin = rank * size_of_slice, .end = (rank + 1) * size_of_slice};
}

}  // namespace slime::model
