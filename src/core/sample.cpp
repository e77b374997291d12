#include "core/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/base64.h"
#include "core/error.h"
#include "core/field_reader.h"
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

/// Numbers below 2^15 as base64 of two bytes each, the lower one first: a token of a large model has
/// hundreds of them.
std::string packed(const std::vector<int16_t>& numbers) {
  std::string bytes;
  bytes.reserve(numbers.size() * 2);
  for (const int16_t number : numbers) {
    bytes += static_cast<char>(number & 0xFF);
    bytes += static_cast<char>(number >> 8 & 0xFF);
  }
  return to_base64(bytes);
}

/// That, or a list of the numbers.
std::vector<int16_t> read_experts(const FieldReader& fields, int64_t num_tokens) {
  constexpr std::string_view kName = "rollout_routed_experts";
  std::vector<int16_t> experts;
  const json::value* value = fields.find(kName);
  if (value == nullptr) return experts;
  if (value->is_string()) {
    const std::optional<std::string> bytes = from_base64(std::string_view(value->get_string()));
    fields.expect(bytes && bytes->size() % 2 == 0, kName, "must be base64 of numbers of two bytes");
    for (std::size_t i = 0; bytes && i + 1 < bytes->size(); i += 2) {
      const auto low = static_cast<unsigned char>((*bytes)[i]);
      const auto high = static_cast<unsigned char>((*bytes)[i + 1]);
      experts.push_back(static_cast<int16_t>(high << 8 | low));
    }
  } else {
    for (const int32_t number : fields.numbers<int32_t>(kName)) {
      fields.expect(number >= 0 && number < (1 << 15), kName, "must be numbers below 32768");
      experts.push_back(static_cast<int16_t>(number));
    }
  }
  const auto size = static_cast<int64_t>(experts.size());
  fields.expect(size == 0 || (num_tokens > 1 && size % (num_tokens - 1) == 0), kName,
                "must have as many numbers for each token but the last");
  return experts;
}

/// A list that is there has an element for each token of the response.
void expect_length(const FieldReader& fields, std::string_view name, std::size_t size,
                   int64_t response_length) {
  if (size == 0 || static_cast<int64_t>(size) == response_length) return;
  fields.note(name,
              fmt::format("must be as long as the response ({}), not {}", response_length, size));
}

std::vector<VersionRun> read_versions(const FieldReader& fields) {
  constexpr std::string_view kName = "weight_versions";
  std::vector<VersionRun> versions;
  const json::array* runs = fields.array(kName);
  if (runs == nullptr) return versions;
  for (const json::value& run : *runs) {
    const json::array* pair = run.if_array();
    const bool is_run =
        pair != nullptr && pair->size() == 2 && (*pair)[0].is_int64() && (*pair)[1].is_int64();
    fields.expect(is_run, kName, "must be a list of [version, tokens]");
    versions.push_back({(*pair)[0].get_int64(), (*pair)[1].get_int64()});
  }
  return versions;
}

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
    object["rollout_routed_experts"] = packed(sample.routed_experts);
  object["remove_sample"] = sample.remove_sample;
  object["status"] = to_string(sample.status);
  if (!sample.failure.empty()) object["failure"] = sample.failure;
  object["metadata"] = sample.metadata;
  if (!sample.custom_rm_path.empty()) object["custom_rm_path"] = sample.custom_rm_path;
  if (!sample.user_fields.empty()) object["user_fields"] = sample.user_fields;
  object["total_prompt_tokens"] = sample.engine_prompt_tokens;
  object["cached_tokens"] = sample.cached_tokens;
  object["generation_seconds"] = sample.generation_seconds;
  return object;
}

Sample sample_from_json(const json::object& object, std::string_view where) {
  const FieldReader fields(object, fmt::format("{}: ", where));  // throws at the first problem
  Sample sample;
  sample.group = fields.integer("group_index").value_or(0);
  sample.ordinal = fields.integer("index").value_or(0);
  sample.index_in_group = fields.integer("index_in_group").value_or(0);
  sample.rollout_id = fields.integer("rollout_id");
  sample.tokens = fields.numbers<TokenId>("tokens");
  const auto num_tokens = static_cast<int64_t>(sample.tokens.size());
  const int64_t response_length = fields.integer("response_length").value_or(0);
  fields.expect(response_length >= 0 && response_length <= num_tokens, "response_length",
                fmt::format("must be from 0 to the number of tokens ({})", num_tokens));
  sample.prompt_length = num_tokens - response_length;
  if (const json::value* prompt = fields.find("prompt"); prompt != nullptr) {
    sample.prompt = prompt->is_string() ? std::string(prompt->get_string()) : json_text(*prompt);
  }
  sample.response = fields.text("response").value_or("");
  if (const json::value* label = fields.find("label"); label != nullptr) sample.label = *label;
  if (const json::value* reward = fields.find("reward"); reward != nullptr) sample.reward = *reward;
  sample.loss_mask = fields.numbers<uint8_t>("loss_mask");
  expect_length(fields, "loss_mask", sample.loss_mask.size(), response_length);
  sample.log_probs = fields.numbers<float>("rollout_log_probs");
  expect_length(fields, "rollout_log_probs", sample.log_probs.size(), response_length);
  sample.teacher_log_probs = fields.numbers<float>("teacher_log_probs");
  sample.top_p_ids = fields.numbers<TokenId>("rollout_top_p_token_ids");
  sample.top_p_offsets = fields.numbers<int64_t>("rollout_top_p_token_offsets");
  const std::vector<int64_t>& offsets = sample.top_p_offsets;
  if (!offsets.empty() &&
      (static_cast<int64_t>(offsets.size()) != response_length + 1 || offsets.front() != 0 ||
       offsets.back() != static_cast<int64_t>(sample.top_p_ids.size()) ||
       !std::ranges::is_sorted(offsets))) {
    fields.note(
        "rollout_top_p_token_offsets",
        fmt::format("must be {} rising numbers from 0 to the number of ids", response_length + 1));
  }
  sample.routed_experts = read_experts(fields, num_tokens);
  sample.versions = read_versions(fields);
  sample.remove_sample = fields.boolean("remove_sample").value_or(false);
  std::vector<std::string_view> words;
  for (const auto& [status, word] : kStatusWords) words.push_back(word);
  sample.status = *status_from_string(*fields.required().one_of("status", words));
  sample.failure = fields.text("failure").value_or("");
  if (const json::object* metadata = fields.object("metadata")) sample.metadata = *metadata;
  sample.custom_rm_path = fields.text("custom_rm_path").value_or("");
  if (const json::object* own = fields.object("user_fields")) sample.user_fields = *own;
  sample.engine_prompt_tokens = fields.integer("total_prompt_tokens").value_or(0);
  sample.cached_tokens = fields.integer("cached_tokens").value_or(0);
  sample.generation_seconds = fields.number("generation_seconds").value_or(0);
  return sample;
}

}  // namespace slime
