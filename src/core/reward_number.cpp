#include "core/reward_number.h"

#include <fmt/format.h>

#include <cmath>

namespace slime {
namespace {

/// Enough of a judge's answer to recognise it.
std::string excerpt(const json::value& value) {
  constexpr std::size_t kMostShown = 200;
  std::string text = json_text(value);
  if (text.size() > kMostShown) text.replace(kMostShown, std::string::npos, "...");
  return text;
}

}  // namespace

Expected<double> reward_number(const json::value& reward, const std::string& reward_key) {
  const json::value* value = &reward;
  if (!reward_key.empty()) {
    const json::object* record = reward.if_object();
    value = record == nullptr ? nullptr : record->if_contains(reward_key);
    if (value == nullptr) {
      return failure(fmt::format("the reward {} has no key \"{}\" (--reward-key)", excerpt(reward),
                                 reward_key));
    }
  }
  if (value->is_bool()) return value->get_bool() ? 1.0 : 0.0;
  if (!value->is_number()) {
    return failure(fmt::format("the reward {} is not a number{}", excerpt(*value),
                               value->is_object() ? "; --reward-key names a field of it" : ""));
  }
  const double number = value->to_number<double>();
  if (!std::isfinite(number))
    return failure(fmt::format("the reward {} is not finite", excerpt(*value)));
  return number;
}

}  // namespace slime
