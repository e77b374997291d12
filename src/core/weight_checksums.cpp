#include "core/weight_checksums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/xxhash64.h"

namespace slime {
namespace {

constexpr std::size_t kShownNames = 8;

struct ByName {
  bool operator()(const TensorChecksum& a, const TensorChecksum& b) const {
    return a.name != b.name ? a.name < b.name : a.checksum < b.checksum;
  }
};

WeightChecksums sorted(WeightChecksums checksums) {
  std::sort(checksums.begin(), checksums.end(), ByName());
  return checksums;
}

}  // namespace

std::vector<std::string> differing_tensors(const WeightChecksums& a, const WeightChecksums& b) {
  const WeightChecksums in_a = sorted(a), in_b = sorted(b);
  WeightChecksums different;
  std::set_symmetric_difference(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                                std::back_inserter(different), ByName());
  std::set<std::string> names;  // a tensor that both have is there twice
  for (TensorChecksum& tensor : different) names.insert(std::move(tensor.name));
  return {names.begin(), names.end()};
}

std::string list_of_tensors(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kShownNames);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

uint64_t combined(const WeightChecksums& checksums) {
  std::string bytes;
  for (const TensorChecksum& tensor : checksums)
    bytes += fmt::format("{} {:016x}\n", tensor.name, tensor.checksum);
  return xxhash64(bytes);
}

}  // namespace slime
