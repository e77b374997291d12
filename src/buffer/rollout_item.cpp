#include "buffer/rollout_item.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/splitmix64.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kLongestInstance = 1024;

bool is_instance(const json::value& value) {
  if (value.is_string())
    return !value.get_string().empty() && value.get_string().size() <= kLongestInstance;
  return value.is_int64() || value.is_uint64();
}

/// Logs hold these numbers: they stay as they are.
uint64_t hash_of(std::string_view instance, std::string_view uid) {
  uint64_t hash = instance.size();
  for (const std::string_view text : {instance, uid}) {
    for (const char byte : text) hash = splitmix64(hash ^ static_cast<unsigned char>(byte));
  }
  return hash;
}

}  // namespace

Expected<RolloutItem> parse_rollout_item(std::string_view body) {
  json::value value;
  try {
    value = parse_json(body, "body");
  } catch (const ConfigError& error) {
    return failure(error.what());
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return failure("body: should be a JSON object");
  if (const auto key = find_duplicate_key(body))
    return failure("body: has the key \"" + *key + "\" twice");
  const json::value* instance = object->if_contains("instance_id");
  if (instance == nullptr || !is_instance(*instance))
    return failure("instance_id: should be a whole number or a string of 1 to 1024 bytes");
  RolloutItem item{
      .instance = json_text(*instance), .uid = {}, .reward = {}, .text = std::string(body)};
  if (const json::value* uid = object->if_contains("uid"); uid != nullptr && !uid->is_null())
    item.uid = hash_of(item.instance, json_text(*uid));
  if (const json::value* reward = object->if_contains("reward");
      reward != nullptr && reward->is_number()) {
    const auto number = reward->to_number<double>();
    if (std::isfinite(number)) item.reward = number;
  }
  // Line ends stand between values only: in strings JSON has them escaped.
  std::ranges::replace_if(
      item.text, [](char byte) { return byte == '\n' || byte == '\r'; }, ' ');
  return item;
}

}  // namespace slime::buffer
