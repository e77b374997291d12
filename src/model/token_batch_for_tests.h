#pragma once

/// Batch of one whole sequence, for tests.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/token_batch.h"

namespace slime::model {

/// From its beginning: token i has position i.
inline TokenBatch sequence_of(const std::vector<int64_t>& ids) {
  TokenBatch batch;
  const auto size = static_cast<int64_t>(ids.size());
  batch.ids_T = at::tensor(ids, at::kLong);
  batch.rotary_row_T = at::arange(size, at::kLong);
  batch.segments = {{0, size, -1}};
  return batch;
}

}  // namespace slime::model
