#include "plugin/read_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <type_traits>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

/// One record and its columns; what is absent is at the default of the original's Sample.
class Fields {
 public:
  Fields(const json::object& record, const Columns& columns) : record_(record), columns_(columns) {}

  const json::value* find(std::string_view name) const {
    const json::value* value = record_.if_contains(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  template <typename T>
  T get(std::string_view name, T otherwise) const {
    const json::value* value = find(name);
    if (value == nullptr) return otherwise;
    try {
      return json::value_to<T>(*value);
    } catch (const std::exception&) {
      throw FrameError(fmt::format("Sample.{} is {}", name, json::serialize(*value)));
    }
  }

  template <typename T>
  std::vector<T> whole(std::string_view name) const {
    const json::value* value = find(name);
    if (value == nullptr) return {};
    std::vector<T> numbers;
    for (const int64_t number : whole_numbers(*value, columns_)) {
      if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max())
        throw FrameError(fmt::format("Sample.{} has a {}", name, number));
      numbers.push_back(static_cast<T>(number));
    }
    return numbers;
  }

  std::vector<float> fractions(std::string_view name) const {
    const json::value* value = find(name);
    if (value == nullptr) return {};
    return floats(*value, columns_);
  }

 private:
  const json::object& record_;
  const Columns& columns_;
};

void expect_length(std::string_view name, std::size_t size, int64_t wanted) {
  if (size == 0 || static_cast<int64_t>(size) == wanted) return;
  throw FrameError(
      fmt::format("Sample.{} has {} numbers for {} response tokens", name, size, wanted));
}

/// The original notes a version for each call, not for each token: known only where all are one.
std::vector<VersionRun> versions_of(const Fields& fields, const Sample& before,
                                    const Sample& after) {
  if (after.tokens == before.tokens && after.prompt_length == before.prompt_length)
    return before.versions;
  const auto words = fields.get<std::vector<std::string>>("weight_versions", {});
  const std::set<std::string> different(words.begin(), words.end());
  if (different.size() != 1 || after.response_length() == 0) return {};
  const std::string& word = *different.begin();
  WeightVersion version = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), version);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return {{.version = version, .num_tokens = after.response_length()}};
}

void read_tokens(const Fields& fields, Sample& sample) {
  sample.tokens = fields.whole<TokenId>("tokens");
  const int64_t length = fields.get<int64_t>("response_length", 0);
  if (length < 0 || length > static_cast<int64_t>(sample.tokens.size()))
    throw FrameError(
        fmt::format("Sample.response_length is {}, of {} tokens", length, sample.tokens.size()));
  sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) - length;
  sample.log_probs = fields.fractions("rollout_log_probs");
  expect_length("rollout_log_probs", sample.log_probs.size(), length);
  sample.teacher_log_probs = fields.fractions("teacher_log_probs");
  expect_length("teacher_log_probs", sample.teacher_log_probs.size(), length);
  sample.loss_mask = fields.whole<uint8_t>("loss_mask");
  expect_length("loss_mask", sample.loss_mask.size(), length);
  if (std::ranges::any_of(sample.loss_mask, [](uint8_t bit) { return bit > 1; }))
    throw FrameError("Sample.loss_mask has numbers that are neither 0 nor 1");
  sample.top_p_ids = fields.whole<TokenId>("rollout_top_p_token_ids");
  sample.top_p_offsets = fields.whole<int64_t>("rollout_top_p_token_offsets");
  const std::vector<int64_t>& offsets = sample.top_p_offsets;
  if (offsets.empty()) return;
  if (static_cast<int64_t>(offsets.size()) != length + 1 || offsets.front() != 0 ||
      offsets.back() != static_cast<int64_t>(sample.top_p_ids.size()) ||
      !std::ranges::is_sorted(offsets)) {
    throw FrameError(fmt::format(
        "Sample.rollout_top_p_token_offsets: should be {} rising numbers from 0 to the number of "
        "ids",
        length + 1));
  }
}

}  // namespace

Sample read_record(const json::object& record, const Columns& columns, const Sample& before,
                   std::vector<std::string>& without_place) {
  const Fields fields(record, columns);
  Sample sample = before;
  read_tokens(fields, sample);
  sample.versions = versions_of(fields, before, sample);
  if (sample.tokens != before.tokens) sample.routed_experts.clear();  // of other tokens
  if (const json::value* prompt = fields.find("prompt"))
    sample.prompt =
        prompt->is_string() ? std::string(prompt->get_string()) : json::serialize(*prompt);
  sample.response = fields.get<std::string>("response", "");
  const json::value* label = fields.find("label");
  sample.label = label == nullptr ? json::value() : *label;
  const json::value* reward = fields.find("reward");
  sample.reward = reward == nullptr ? json::value() : *reward;
  sample.metadata = fields.get<json::object>("metadata", {});
  sample.custom_rm_path = fields.get<std::string>("custom_rm_path", "");
  sample.remove_sample = fields.get<bool>("remove_sample", false);
  sample.rollout_id.reset();
  if (fields.find("rollout_id") != nullptr)
    sample.rollout_id = fields.get<int64_t>("rollout_id", 0);
  const auto word = fields.get<std::string>("status", "pending");
  const std::optional<Status> status = status_from_string(word);
  if (!status) throw FrameError(fmt::format("Sample.status is {}", word));
  sample.status = *status;
  if (*status != before.status) sample.failure.clear();
  if (*status == Status::kFailed && sample.failure.empty())
    sample.failure = "the function set its status to failed";
  const auto counts = fields.get<json::object>("prefix_cache_info", {});
  const Fields cache(counts, columns);
  sample.cached_tokens = cache.get<int64_t>("cached_tokens", before.cached_tokens);
  sample.engine_prompt_tokens =
      cache.get<int64_t>("total_prompt_tokens", before.engine_prompt_tokens);
  static const std::set<std::string_view> kKnown = {"index",
                                                    "group_index",
                                                    "prompt",
                                                    "response",
                                                    "response_length",
                                                    "status",
                                                    "rollout_id",
                                                    "tokens",
                                                    "rollout_log_probs",
                                                    "teacher_log_probs",
                                                    "loss_mask",
                                                    "weight_versions",
                                                    "label",
                                                    "metadata",
                                                    "custom_rm_path",
                                                    "reward",
                                                    "remove_sample",
                                                    "rollout_top_p_token_ids",
                                                    "rollout_top_p_token_offsets",
                                                    "prefix_cache_info"};
  for (const auto& member : record) {
    if (member.key() == "extra") {
      for (const auto& own : fields.get<json::object>("extra", {}))
        without_place.emplace_back(own.key());
    } else if (!kKnown.contains(member.key())) {
      without_place.emplace_back(member.key());
    }
  }
  return sample;
}

}  // namespace slime::plugin
