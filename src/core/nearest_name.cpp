#include "core/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace slime {
namespace {

/// Names may come from strangers; the distance takes time by the product of two lengths.
constexpr std::size_t kLongestName = 128;

/// Two neighbours that changed places are one edit (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool are_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (are_swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> known) {
  if (name.size() > kLongestName) return std::nullopt;
  std::size_t limit = std::min<std::size_t>(3, name.size() / 2);
  std::optional<std::string_view> nearest;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance > limit || (nearest && distance == limit)) continue;
    limit = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  const auto nearest = nearest_name(name, known);
  return nearest ? "; did you mean " + std::string(*nearest) + "?" : "";
}

}  // namespace slime
