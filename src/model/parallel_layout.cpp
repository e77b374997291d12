#include "model/parallel_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/divide_up.h"
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

Slice vocabulary_slice(const comm::Mesh& mesh, int64_t size) {
  const int64_t tp = mesh.sizes().tp, rank = mesh.at().tp;
  if (tp == 1) return {};
  const int64_t each = divide_up(size, tp);
  if (rank * each >= size) {
    throw ConfigError(fmt::format("tensor parallelism of {} leaves no part of {} ids for rank {}",
                                  tp, size, rank));
  }
  return {.dim = 0, .begin = rank * each, .end = std::min(size, (rank + 1) * each)};
}

}  // namespace slime::model
