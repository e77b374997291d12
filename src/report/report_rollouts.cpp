#include "report/report_rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace slime::report {
namespace {

const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = find(object, key);
  if (value == nullptr) return "";
  return value->is_string() ? std::string(value->get_string()) : json_text(*value);
}

/// Numbers with five digits after the point: a page is read by people.
json::value rounded_numbers(const json::value* value, std::size_t count) {
  if (value == nullptr || !value->is_array() || value->get_array().size() != count) return nullptr;
  json::array out;
  out.reserve(count);
  for (const json::value& element : value->get_array()) {
    const double number = element.is_number() ? element.to_number<double>() : std::nan("");
    if (std::isfinite(number)) {
      out.emplace_back(std::round(number * 1e5) / 1e5);
    } else {
      out.emplace_back(nullptr);
    }
  }
  return out;
}

json::value texts_of(const json::value* value, std::size_t count) {
  if (value == nullptr || !value->is_array() || value->get_array().size() != count) return nullptr;
  const bool are_strings = std::ranges::all_of(
      value->get_array(), [](const json::value& text) { return text.is_string(); });
  return are_strings ? *value : json::value();
}

/// The number that trained, when there is one: `reward` itself, or its member `reward_key` ("score"
/// without a key).
json::value reward_number(const json::value* reward, std::string_view reward_key) {
  if (reward != nullptr && reward->is_object())
    reward = find(reward->get_object(), reward_key.empty() ? "score" : reward_key);
  if (reward == nullptr) return nullptr;
  if (reward->is_bool()) return reward->get_bool() ? 1.0 : 0.0;
  if (!reward->is_number() || !std::isfinite(reward->to_number<double>())) return nullptr;
  return *reward;
}

struct PendingSample {
  int64_t group = 0;
  std::string text;
};

/// What fits of one file's samples: all, or every so many-th group.
void keep_what_fits(std::vector<PendingSample>& samples, uint64_t limit_bytes) {
  uint64_t total_bytes = 0;
  for (const PendingSample& sample : samples) total_bytes += sample.text.size() + 1;
  if (total_bytes <= limit_bytes) return;
  std::map<int64_t, uint64_t> order;  // group to its place
  for (const PendingSample& sample : samples) order.try_emplace(sample.group, order.size());
  const auto num_groups = order.size();
  const auto num_kept =
      static_cast<uint64_t>(static_cast<double>(num_groups) * static_cast<double>(limit_bytes) /
                            static_cast<double>(total_bytes));
  std::vector<PendingSample> kept;
  uint64_t used_bytes = 0;
  for (PendingSample& sample : samples) {
    const uint64_t place = order.at(sample.group);
    // True for max(1, num_kept) places, evenly spaced.
    const bool is_kept = (place + 1) * std::max<uint64_t>(num_kept, 1) / num_groups >
                         place * std::max<uint64_t>(num_kept, 1) / num_groups;
    if (!is_kept || used_bytes + sample.text.size() + 1 > limit_bytes) continue;
    used_bytes += sample.text.size() + 1;
    kept.push_back(std::move(sample));
  }
  samples = std::move(kept);
}

}  // namespace

json::object page_sample(const json::object& line, int64_t step, std::string_view reward_key) {
  const json::value* tokens = find(line, "tokens");
  const json::value* length = find(line, "response_length");
  json::error_code error;
  const int64_t num_response = length == nullptr ? 0 : length->to_number<int64_t>(error);
  const auto count = static_cast<std::size_t>(error ? 0 : std::max<int64_t>(num_response, 0));
  const json::value* reward = find(line, "reward");

  json::object out;
  out["step"] = step;
  out["prompt"] = text_at(line, "prompt");
  out["response"] = text_at(line, "response");
  out["reward"] = reward_number(reward, reward_key);
  if (reward != nullptr && reward->is_object()) out["reward_record"] = *reward;
  out["status"] = text_at(line, "status");
  out["length"] = count;
  out["label"] = text_at(line, "label");
  for (const auto& [name, key] :
       {std::pair("group", "group_index"), std::pair("index", "index_in_group"),
        std::pair("versions", "weight_versions"), std::pair("failure", "failure")}) {
    if (const json::value* value = find(line, key)) out[name] = *value;
  }
  if (const json::value* removed = find(line, "remove_sample");
      removed != nullptr && *removed == json::value(true))
    out["removed"] = true;
  if (const json::value* cached = find(line, "cached_tokens");
      cached != nullptr && cached->is_number())
    out["cached_tokens"] = *cached;
  if (const json::value* seconds = find(line, "generation_seconds");
      seconds != nullptr && seconds->is_number()) {
    out["seconds"] = std::round(seconds->to_number<double>() * 1e3) / 1e3;
  }
  const json::value log_probs = rounded_numbers(find(line, "rollout_log_probs"), count);
  const json::value texts = texts_of(find(line, "token_texts"), count);
  if (log_probs.is_null()) return out;
  out["log_probs"] = log_probs;
  if (const json::value trainer = rounded_numbers(find(line, "train_log_probs"), count);
      !trainer.is_null())
    out["train_log_probs"] = trainer;
  if (const json::value mask = rounded_numbers(find(line, "loss_mask"), count); !mask.is_null())
    out["mask"] = mask;
  if (texts.is_null()) return out;
  out["token_texts"] = texts;
  if (tokens != nullptr && tokens->is_array() && tokens->get_array().size() >= count) {
    const json::array& ids = tokens->get_array();
    out["ids"] = json::array(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end());
  }
  return out;
}

SampledRollouts sample_rollouts(const std::vector<RolloutFile>& files, uint64_t limit_bytes,
                                std::string_view reward_key, std::vector<std::string>& problems) {
  uint64_t total_bytes = 0;
  for (const RolloutFile& file : files) total_bytes += file.size_bytes;
  SampledRollouts out;
  int64_t num_read = 0;
  for (const RolloutFile& file : files) {
    std::vector<PendingSample> samples;
    for_each_json_line(file.path, problems, [&](const json::object& line) {
      json::object sample = page_sample(line, file.step, reward_key);
      const json::value* group = sample.if_contains("group");
      samples.push_back(
          {group != nullptr && group->is_int64() ? group->get_int64() : 0, json_text(sample)});
    });
    num_read += static_cast<int64_t>(samples.size());
    const double share = static_cast<double>(file.size_bytes) /
                         static_cast<double>(std::max<uint64_t>(total_bytes, 1));
    keep_what_fits(samples, static_cast<uint64_t>(share * static_cast<double>(limit_bytes)));
    out.num_samples += static_cast<int64_t>(samples.size());
    for (const PendingSample& sample : samples) {
      if (!out.json.empty()) out.json += ',';
      out.json += sample.text;
    }
  }
  if (out.num_samples < num_read) {
    problems.push_back(
        fmt::format("{} of {} rollouts are on the page, some of each step: all of them would make "
                    "it larger than {:.1f} MB; `slime view` shows every one",
                    out.num_samples, num_read, static_cast<double>(limit_bytes) / 1e6));
  }
  return out;
}

}  // namespace slime::report
