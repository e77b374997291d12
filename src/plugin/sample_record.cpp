#include "plugin/sample_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

json::value words_of(const std::vector<VersionRun>& versions) {
  json::array words;
  for (const VersionRun& run : versions) {
    const std::string word = std::to_string(run.version);
    if (words.empty() || words.back() != json::value(word)) words.emplace_back(word);
  }
  return words;
}

template <typename T>
T of_type(const json::value& value, std::string_view name) {
  try {
    return json::value_to<T>(value);
  } catch (const std::exception&) {
    throw FrameError(fmt::format("Sample.{} was set to {}", name, json_text(value)));
  }
}

void set_status(const json::value& value, std::string_view who, Sample& sample) {
  const auto word = of_type<std::string>(value, "status");
  const std::optional<Status> status = status_from_string(word);
  if (!status || *status == Status::kPending || *status == Status::kAborted) {
    throw FrameError(fmt::format(
        "Sample.status was set to {}; a sample that is drawn is completed, truncated or failed",
        word));
  }
  sample.status = *status;
  if (*status == Status::kFailed)
    sample.failure = fmt::format("{}: the function set its status to failed", who);
}

void set_mask(const json::value& value, const Columns& columns, Sample& sample) {
  const std::vector<int64_t> mask = whole_numbers(value, columns);
  if (static_cast<int64_t>(mask.size()) != sample.response_length()) {
    throw FrameError(fmt::format("Sample.loss_mask was set to {} numbers for {} response tokens",
                                 mask.size(), sample.response_length()));
  }
  if (!std::ranges::all_of(mask, [](int64_t bit) { return bit == 0 || bit == 1; }))
    throw FrameError("Sample.loss_mask was set to numbers that are neither 0 nor 1");
  sample.loss_mask.assign(mask.begin(), mask.end());
}

}  // namespace

json::object to_record(const Sample& sample, Columns& columns) {
  json::object record{{"index", sample.ordinal},
                      {"group_index", sample.group},
                      {"prompt", sample.prompt},
                      {"response", sample.response},
                      {"response_length", sample.response_length()},
                      {"status", to_string(sample.status)}};
  if (sample.rollout_id) record["rollout_id"] = *sample.rollout_id;
  if (!sample.tokens.empty()) record["tokens"] = add_column(columns, sample.tokens);
  if (!sample.log_probs.empty())
    record["rollout_log_probs"] = add_column(columns, sample.log_probs);
  if (!sample.teacher_log_probs.empty())
    record["teacher_log_probs"] = add_column(columns, sample.teacher_log_probs);
  if (!sample.loss_mask.empty()) record["loss_mask"] = add_column(columns, sample.loss_mask);
  if (!sample.top_p_offsets.empty()) {
    record["rollout_top_p_token_ids"] = add_column(columns, sample.top_p_ids);
    const std::vector<int32_t> offsets(sample.top_p_offsets.begin(), sample.top_p_offsets.end());
    record["rollout_top_p_token_offsets"] = add_column(columns, offsets);
  }
  if (sample.engine_prompt_tokens > 0) {
    record["prefix_cache_info"] = {{"cached_tokens", sample.cached_tokens},
                                   {"total_prompt_tokens", sample.engine_prompt_tokens}};
  }
  if (!sample.versions.empty()) record["weight_versions"] = words_of(sample.versions);
  if (!sample.label.is_null()) record["label"] = sample.label;
  if (!sample.metadata.empty()) record["metadata"] = sample.metadata;
  if (!sample.custom_rm_path.empty()) record["custom_rm_path"] = sample.custom_rm_path;
  if (!sample.reward.is_null()) record["reward"] = sample.reward;
  if (sample.remove_sample) record["remove_sample"] = true;
  for (const auto& own : sample.user_fields) record[own.key()] = own.value();
  return record;
}

void apply_changes(const json::object& changes, const Columns& columns, std::string_view who,
                   Sample& sample) {
  for (const auto& member : changes) {
    const std::string_view name = member.key();
    const json::value& value = member.value();
    if (name == "status") {
      set_status(value, who, sample);
    } else if (name == "metadata") {
      sample.metadata = of_type<json::object>(value, name);
    } else if (name == "label") {
      sample.label = value;
    } else if (name == "remove_sample") {
      sample.remove_sample = of_type<bool>(value, name);
    } else if (name == "loss_mask") {
      set_mask(value, columns, sample);
    } else if (name == "extra") {
      sample.user_fields[name] = of_type<json::object>(value, name);
    } else if (name == "response") {
      sample.response = of_type<std::string>(value, name);
    } else if (name == "rollout_id") {
      sample.rollout_id = of_type<std::optional<int64_t>>(value, name);
    } else if (name == "reward") {
      sample.reward = value;
    } else {
      sample.user_fields[name] = value;
    }
  }
}

}  // namespace slime::plugin
