#pragma once

/// Checksums of a model's tensors, to find out whether two of them have the same weights.

#include <cstdint>
#include <string>
#include <vector>

namespace slime {

struct TensorChecksum {
  std::string name;       // Hugging Face's
  uint64_t checksum = 0;  // xxhash64() of the tensor's bytes
  bool operator==(const TensorChecksum&) const = default;
};

/// In the order of the model's tensors.
using WeightChecksums = std::vector<TensorChecksum>;

/// Tensors of which the two have different bytes, or which one of them lacks, by name.
std::vector<std::string> differing_tensors(const WeightChecksums& a, const WeightChecksums& b);
/// Such names for a message: the first few, and how many more there are.
std::string list_of_tensors(const std::vector<std::string>& names);
/// One checksum of all.
uint64_t combined(const WeightChecksums& checksums);

}  // namespace slime
