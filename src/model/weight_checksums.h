#pragma once

/// Checksums of the tensors of a network's weights (core/weight_checksums.h).

#include "core/weight_checksums.h"
#include "model/weights.h"

namespace slime::model {

/// Of all tensors and constants, as they are on this rank. Copies them to the host one by one; nobody
/// changes them meanwhile.
WeightChecksums checksums_of(const Weights& weights);

/// The bytes of one tensor, or a slice of it, contiguous on any device.
uint64_t checksum_of(const Tensor& tensor);

/// Every tensor and constant becomes random numbers: what is not written again afterwards shows.
void fill_with_noise(Weights& weights, uint64_t seed);

}  // namespace slime::model
