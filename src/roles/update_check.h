#pragma once

/// --check-weight-update-equal: the engines have the trainer's weights.

#include "core/expected.h"
#include "core/weight_checksums.h"

namespace slime::roles {

/// Throws ConfigError with the names of the tensors of which the engines have others, or with what kept
/// them from saying. Tensors that the trainer has not are those of draft layers.
void require_same_weights(const WeightChecksums& trained, const Expected<WeightChecksums>& engines);

}  // namespace slime::roles
