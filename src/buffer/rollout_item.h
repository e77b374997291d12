#pragma once

/// One finished rollout as its generator hands it over: a JSON object whose `instance_id` names the
/// prompt. The object is kept as its text; the other fields are for whoever trains on it.
///
///   {"uid": "a1", "instance_id": 7, "messages": [...], "reward": 1.0, "extra_info": {}}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/expected.h"

namespace slime::buffer {

struct RolloutItem {
  std::string instance;          // JSON of instance_id: 7 and "7" are two
  std::optional<uint64_t> uid;   // hash of instance and uid; nothing: the item has no uid
  std::optional<double> reward;  // where it is a number
  std::string text;              // the object, on one line
};

/// Strict: UTF-8, no key twice, depth 64, an object with an instance_id that is a whole number or a
/// string of 1 to 1024 bytes.
Expected<RolloutItem> parse_rollout_item(std::string_view body);

}  // namespace slime::buffer
