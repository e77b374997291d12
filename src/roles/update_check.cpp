#include "roles/update_check.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace slime::roles {

void require_same_weights(const WeightChecksums& trained,
                          const Expected<WeightChecksums>& engines) {
  if (!engines) throw ConfigError("--check-weight-update-equal: " + engines.error().message);
  std::set<std::string_view> names;
  for (const TensorChecksum& tensor : trained) names.insert(tensor.name);
  WeightChecksums published = *engines;
  std::erase_if(published,
                [&](const TensorChecksum& tensor) { return !names.contains(tensor.name); });
  const std::vector<std::string> different = differing_tensors(trained, published);
  if (different.empty()) return;
  throw ConfigError(
      fmt::format("--check-weight-update-equal: {} of {} tensors of the engines are not those of "
                  "the trainer: {}",
                  different.size(), trained.size(), list_of_tensors(different)));
}

}  // namespace slime::roles
