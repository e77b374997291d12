#include "roles/update_check.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::roles {

void require_same_weights(const WeightChecksums& trained,
                          const Expected<WeightChecksums>& engines) {
  if (!engines) throw ConfigError("--check-weight-update-equal: " + engines.error().message);
  const std::vector<std::string> different = differing_tensors(trained, *engines);
  if (different.empty()) return;
  throw ConfigError(
      fmt::format("--check-weight-update-equal: {} of {} tensors of the engines are not those of "
                  "the trainer: {}",
                  different.size(), trained.size(), list_of_tensors(different)));
}

}  // namespace slime::roles
