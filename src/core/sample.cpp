#include "core/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "core/reward_number.h"

namespace slime {
namespace {

constexpr std::array<std::pair<Status, std::string_view>, 5> kStatusWords{
    {{Status::kPending, "pending"},
     {Status::kCompleted, "completed"},
     {Status::kTruncated, "truncated"},
     {Status::kAborted, "aborted"},
     {Status::kFailed, "failed"}}};

template <typename T>
json::array to_array(const std::vector<T>& values) {
  json::array array;
  array.reserve(values.size());
  for (const T value : values) array.emplace_back(value);
  return array;
}

/// Throws ConfigError naming the field when `object[key]` has another type than the reader expects.
class FieldReader {
 public:
  FieldReader(const json::object& object, std::string_view where)
      : object_(object), where_(where) {}

  const json::value* find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  int64_t integer(std::string_view key, int64_t fallback) const {
    const json::value* value = find(key);
    if (value == nullptr) return fallback;
    json::error_code error;
    const int64_t number = value->to_number<int64_t>(error);
    if (error) wrong(key, "an integer");
    return number;
  }

  double real(std::string_view key, double fallback) const {
    const json::value* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) wrong(key, "a number");
    return value->to_number<double>();
  }

  std::string text(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) wrong(key, "a string");
    return std::string(value->get_string());
  }

  template <typename T>
  std::vector<T> numbers(std::string_view key) const {
    std::vector<T> numbers;
    const json::value* value = find(key);
    if (value == nullptr) return numbers;
    if (!value->is_array()) wrong(key, "a list of numbers");
    numbers.reserve(value->get_array().size());
    for (const json::value& element : value->get_array()) {
      json::error_code error;
      numbers.push_back(element.to_number<T>(error));
      if (error) wrong(key, "a list of numbers");
    }
    return numbers;
  }

  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    throw ConfigError(fmt::format("{}: field \"{}\" should be {}", where_, key, expected));
  }

 private:
  const json::object& object_;
  std::string_view where_;
};

}  // namespace

std::string_view to_string(Status status) {
  for (const auto& [value, word] : kStatusWords) {
    if (value == status) return word;
  }
  throw BugError("a status has no word");
}

std::optional<Status> status_from_string(std::string_view text) {
  for (const auto& [value, word] : kStatusWords) {
    if (word == text) return value;
  }
  return std::nullopt;
}

int64_t Sample::effective_response_length() const {
  if (loss_mask.empty()) return response_length();
  return std::accumulate(loss_mask.begin(), loss_mask.end(), int64_t{0});
}

double Sample::reward_value(const std::string& reward_key) const {
  const Expected<double> number = reward_number(reward, reward_key);
  if (!number) throw ConfigError(fmt::format("sample {}: {}", ordinal, number.error().message));
  return *number;
}

json::object to_json(const Sample& sample) {
  json::object object;
  object["group_index"] = sample.group;
  object["index"] = sample.ordinal;
  object["index_in_group"] = sample.index_in_group;
  object["rollout_id"] = sample.rollout_id ? json::value(*sample.rollout_id) : json::value();
  object["prompt"] = sample.prompt;
  object["tokens"] = to_array(sample.tokens);
  object["response"] = sample.response;
  object["response_length"] = sample.response_length();
  object["label"] = sample.label;
  object["reward"] = sample.reward;
  object["loss_mask"] =
      sample.loss_mask.empty() ? json::value() : json::value(to_array(sample.loss_mask));
  json::array runs;
  for (const VersionRun& run : sample.versions)
    runs.push_back(json::array{run.version, run.num_tokens});
  object["weight_versions"] = std::move(runs);
  object["rollout_log_probs"] = to_array(sample.log_probs);
  if (!sample.teacher_log_probs.empty())
    object["teacher_log_probs"] = to_array(sample.teacher_log_probs);
  if (!sample.top_p_offsets.empty()) {
    object["rollout_top_p_token_ids"] = to_array(sample.top_p_ids);
    object["rollout_top_p_token_offsets"] = to_array(sample.top_p_offsets);
  }
  if (!sample.routed_experts.empty())
    object["rollout_routed_experts"] = to_array(sample.routed_experts);
  object["remove_sample"] = sample.remove_sample;
  object["status"] = to_string(sample.status);
  if (!sample.failure.empty()) object["failure"] = sample.failure;
  object["metadata"] = sample.metadata;
  object["total_prompt_tokens"] = sample.engine_prompt_tokens;
  object["cached_tokens"] = sample.cached_tokens;
  object["generation_seconds"] = sample.generation_seconds;
  return object;
}

Sample sample_from_json(const json::object& object, std::string_view where) {
  const FieldReader read(object, where);
  Sample sample;
  sample.group = read.integer("group_index", 0);
  sample.ordinal = read.integer("index", 0);
  sample.index_in_group = read.integer("index_in_group", 0);
  if (read.find("rollout_id") != nullptr) sample.rollout_id = read.integer("rollout_id", 0);
  sample.tokens = read.numbers<TokenId>("tokens");
  const int64_t response_length = read.integer("response_length", 0);
  if (response_length < 0 || response_length > static_cast<int64_t>(sample.tokens.size())) {
    read.wrong("response_length", "between 0 and the number of tokens");
  }
  sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) - response_length;
  if (const json::value* prompt = read.find("prompt"); prompt != nullptr) {
    sample.prompt =
        prompt->is_string() ? std::string(prompt->get_string()) : json::serialize(*prompt);
  }
  sample.response = read.text("response");
  if (const json::value* label = read.find("label"); label != nullptr) sample.label = *label;
  if (const json::value* reward = read.find("reward"); reward != nullptr) sample.reward = *reward;
  sample.loss_mask = read.numbers<uint8_t>("loss_mask");
  if (!sample.loss_mask.empty() &&
      static_cast<int64_t>(sample.loss_mask.size()) != response_length) {
    read.wrong("loss_mask", fmt::format("as long as the response ({})", response_length));
  }
  sample.log_probs = read.numbers<float>("rollout_log_probs");
  if (!sample.log_probs.empty() &&
      static_cast<int64_t>(sample.log_probs.size()) != response_length) {
    read.wrong("rollout_log_probs", fmt::format("as long as the response ({})", response_length));
  }
  sample.teacher_log_probs = read.numbers<float>("teacher_log_probs");
  sample.top_p_ids = read.numbers<TokenId>("rollout_top_p_token_ids");
  sample.top_p_offsets = read.numbers<int64_t>("rollout_top_p_token_offsets");
  if (!sample.top_p_offsets.empty() &&
      (static_cast<int64_t>(sample.top_p_offsets.size()) != response_length + 1 ||
       sample.top_p_offsets.back() != static_cast<int64_t>(sample.top_p_ids.size()) ||
       sample.top_p_offsets.front() != 0 || !std::ranges::is_sorted(sample.top_p_offsets))) {
    read.wrong("rollout_top_p_token_offsets",
               fmt::format("{} rising numbers from 0 to the number of ids", response_length + 1));
  }
  sample.routed_experts = read.numbers<int32_t>("rollout_routed_experts");
  if (const json::value* runs = read.find("weight_versions"); runs != nullptr) {
    const auto is_run = [](const json::value& run) {
      return run.is_array() && run.get_array().size() == 2 && run.get_array()[0].is_int64() &&
             run.get_array()[1].is_int64();
    };
    if (!runs->is_array() || !std::ranges::all_of(runs->get_array(), is_run))
      read.wrong("weight_versions", "a list of [version, tokens]");
    for (const json::value& run : runs->get_array())
      sample.versions.push_back({run.get_array()[0].get_int64(), run.get_array()[1].get_int64()});
  }
  if (const json::value* removed = read.find("remove_sample"); removed != nullptr) {
    if (!removed->is_bool()) read.wrong("remove_sample", "true or false");
    sample.remove_sample = removed->get_bool();
  }
  const std::optional<Status> status = status_from_string(read.text("status"));
  if (!status) read.wrong("status", "pending, completed, truncated, aborted or failed");
  sample.status = *status;
  sample.failure = read.text("failure");
  if (const json::value* metadata = read.find("metadata"); metadata != nullptr) {
    if (!metadata->is_object()) read.wrong("metadata", "an object");
    sample.metadata = metadata->get_object();
  }
  sample.engine_prompt_tokens = read.integer("total_prompt_tokens", 0);
  sample.cached_tokens = read.integer("cached_tokens", 0);
  sample.generation_seconds = read.real("generation_seconds", 0);
  return sample;
}

}  // namespace slime
