#pragma once

/// Row ranges of a grouped product: rows [starts[e], starts[e + 1]) are multiplied with matrix e.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace slime::kernels {

/// E groups. On a GPU the starts stay there, so that nobody waits for them.
struct GroupStarts {
  std::vector<int64_t> host;  // [E + 1]; empty: they are on the device
  Tensor device_E1;           // int32

  GroupStarts() = default;
  GroupStarts(std::vector<int64_t> starts) : host(std::move(starts)) {}  // NOLINT: the same thing
  explicit GroupStarts(Tensor starts_E1) : device_E1(std::move(starts_E1)) {}

  bool is_on_device() const { return device_E1.defined(); }
};

}  // namespace slime::kernels
