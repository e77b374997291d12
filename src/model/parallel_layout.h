#pragma once

/// Shard of a tensor that a rank holds. World size one is the same code with
/// full slices.

#include <cstdint>

#include "comm/mesh.h"
#include "model/slices.h"

namespace slime::model {

/// This rank's of mesh.sizes().tp equal slices of `size` along `dim`. Throws ConfigError when it
/// does not divide.
Slice tensor_parallel_slice(const comm::Mesh& mesh, int dim, int64_t size);

/// This rank's ids of a vocabulary: as many for each, the last one may have fewer. Throws ConfigError
/// when it would have none.
Slice vocabulary_slice(const comm::Mesh& mesh, int64_t size);

}  // namespace slime::model
