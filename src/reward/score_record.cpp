#include "reward/score_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/reward_number.h"

namespace slime::reward {
namespace {

constexpr std::string_view kScore = "score";  // the field of dapo's records

/// Without a key a record counts by its score.
Expected<double> number_in(const json::value& reward, const std::string& reward_key) {
  const bool has_score = reward.is_object() && reward.get_object().contains(kScore);
  return reward_number(reward, reward_key.empty() && has_score ? std::string(kScore) : reward_key);
}

/// 1 rather than 1E0.
json::value shortest(double number) {
  constexpr double kLargest = 9007199254740992.0;  // 2^53
  if (number == std::trunc(number) && std::abs(number) < kLargest)
    return static_cast<int64_t>(number);
  return number;
}

/// A text as it is; messages as JSON.
std::string prompt_text(const FieldReader& fields) {
  const json::value* prompt = fields.find("prompt");
  if (prompt == nullptr) return "";
  if (prompt->is_string()) return std::string(prompt->get_string());
  const json::array* list = prompt->if_array();
  const auto is_message = [](const json::value& each) { return each.is_object(); };
  fields.expect(list != nullptr && !list->empty() && std::ranges::all_of(*list, is_message),
                "prompt", "must be a string or a list of messages (objects)");
  return json_text(*prompt);
}

}  // namespace

Sample sample_of_record(const json::object& record, int64_t ordinal, const std::string& where) {
  const FieldReader fields(record, where + ": ");
  if (!record.contains("response")) fields.required().text("response");
  Sample sample;
  sample.ordinal = ordinal;
  sample.prompt = prompt_text(fields);
  sample.response = fields.text("response").value_or("");
  if (const json::value* label = record.if_contains("label")) sample.label = *label;
  if (const json::object* metadata = fields.object("metadata")) sample.metadata = *metadata;
  sample.status = Status::kCompleted;
  return sample;
}

json::object score_record(const json::object& record, int64_t ordinal, const Scoring& how,
                          const std::string& where) {
  const Sample sample = sample_of_record(record, ordinal, where);
  if (!how.judge) {
    if (const auto problem = type_problem(sample.metadata, how.type, how.config))
      throw ConfigError(fmt::format("{}: {}", where, *problem));
  }
  const Expected<json::value> answer =
      how.judge ? how.judge(sample) : make_reward(how.type, how.config)(sample);
  if (!answer) return {{"score", nullptr}, {"reason", answer.error().message}};
  const Expected<double> number = number_in(*answer, how.reward_key);
  json::object out;
  out["score"] = number ? shortest(*number) : json::value(nullptr);
  if (answer->is_object()) out["reward"] = *answer;
  if (!number) out["reason"] = number.error().message;
  return out;
}

}  // namespace slime::reward
