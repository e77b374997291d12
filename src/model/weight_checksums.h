#pragma once

/// Checksums of the tensors of a network's weights (core/weight_checksums.h).

#include <cstdint>
#include <vector>

#include "comm/rank_group.h"
#include "core/weight_checksums.h"
#include "model/weights.h"

namespace slime::model {

/// Of all tensors and constants, as they are on this rank. Copies them to the host one by one; nobody
/// changes them meanwhile.
WeightChecksums checksums_of(const Weights& weights);

/// The same of a model of which `ranks` have slices, tensors, codes and factors put together at rank 0: there the
/// result is that of one rank that has the model whole, elsewhere empty. Where ranks that each have all of a tensor
/// have different ones, its checksum is none of theirs. All ranks call it together.
WeightChecksums checksums_of(const Weights& weights, comm::RankGroup& ranks);

/// The bytes of one tensor, or a slice of it, contiguous on any device.
uint64_t checksum_of(const Tensor& tensor);

/// Of a tensor that is stored as one, or as codes and factors (model/stored_parts.h).
uint64_t combined_checksum(const std::vector<uint64_t>& of_parts);

/// Every tensor and constant becomes random numbers: what is not written again afterwards shows.
void fill_with_noise(Weights& weights, uint64_t seed = 1);

}  // namespace slime::model
