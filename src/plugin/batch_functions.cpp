#include "plugin/batch_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"
#include "net/frame_channel.h"
#include "plugin/group_record.h"
#include "plugin/payload.h"
#include "plugin/sample_record.h"
#include "setup/train_config.h"

namespace slime::plugin {
namespace {

using net::FrameError;
using Numbers = std::vector<double>;

constexpr std::string_view kConvertFlag = "--custom-convert-samples-to-train-data-path";
constexpr std::string_view kRewardFlag = "--custom-reward-post-process-path";

double number_of(const json::value& word, std::string_view name) {
  if (word.is_bool()) return word.get_bool() ? 1 : 0;
  if (!word.is_number()) throw FrameError(fmt::format("{} has something that is no number", name));
  return word.to_number<double>();
}

void expect_count(std::string_view name, std::size_t count, std::size_t num_samples) {
  if (count != num_samples)
    throw FrameError(fmt::format("{} has {} entries for {} samples", name, count, num_samples));
}

/// The dictionary of a converter, column by column.
class Converted {
 public:
  Converted(const json::object& data, const Columns& columns, std::size_t num_samples)
      : data_(data), columns_(columns), num_samples_(num_samples) {}

  const json::value* find(std::string_view name) const {
    const json::value* value = data_.if_contains(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  /// One number for each sample; nothing: the key is absent.
  std::optional<Numbers> numbers(std::string_view name) const {
    const json::value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) throw FrameError(fmt::format("{} is no list", name));
    expect_count(name, value->get_array().size(), num_samples_);
    Numbers all;
    for (const json::value& word : value->get_array()) all.push_back(number_of(word, name));
    return all;
  }

  /// A list of numbers for each sample.
  std::optional<std::vector<Numbers>> rows(std::string_view name) const {
    const json::value* value = find(name);
    if (value == nullptr) return std::nullopt;
    std::vector<Numbers> rows;
    if (const json::object* packed = value->if_object()) {
      rows = unpacked(*packed, name);
    } else {
      if (!value->is_array()) throw FrameError(fmt::format("{} is no list", name));
      for (const json::value& row : value->get_array()) {
        if (!row.is_array())
          throw FrameError(fmt::format("{} has something that is no list", name));
        Numbers& last = rows.emplace_back();
        for (const json::value& word : row.get_array()) last.push_back(number_of(word, name));
      }
    }
    expect_count(name, rows.size(), num_samples_);
    return rows;
  }

 private:
  std::vector<Numbers> unpacked(const json::object& packed, std::string_view name) const {
    const json::value* words = packed.if_contains("rows");
    const json::value* begins = packed.if_contains("starts");
    if (words == nullptr || begins == nullptr) throw FrameError(fmt::format("{} is no list", name));
    const std::vector<int64_t> starts = whole_numbers(*begins, columns_);
    const Numbers all = doubles(*words, columns_);
    const bool is_cut = !starts.empty() && starts.front() == 0 && std::ranges::is_sorted(starts) &&
                        starts.back() == static_cast<int64_t>(all.size());
    if (!is_cut) throw FrameError(fmt::format("{} has places that are none", name));
    std::vector<Numbers> rows;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      rows.emplace_back(all.begin() + starts[i], all.begin() + starts[i + 1]);
    return rows;
  }

  const json::object& data_;
  const Columns& columns_;
  const std::size_t num_samples_;
};

template <typename T>
T required(std::optional<T> value, std::string_view name) {
  if (!value) throw FrameError(fmt::format("the dictionary lacks {}", name));
  return std::move(*value);
}

int64_t whole(double number, std::string_view name) {
  constexpr double kLargest = 9007199254740992.0;  // 2^53
  if (number != std::trunc(number) || std::abs(number) > kLargest)
    throw FrameError(fmt::format("{} has {}, which is no whole number", name, number));
  return static_cast<int64_t>(number);
}

void take_tokens(const Numbers& row, int64_t response_length, const Sample& sampled,
                 train::TrainSample& sample) {
  for (const double number : row) {
    const int64_t id = whole(number, "tokens");
    if (id < 0 || id > std::numeric_limits<TokenId>::max())
      throw FrameError(fmt::format("tokens has {}", id));
    sample.tokens.push_back(static_cast<TokenId>(id));
  }
  sample.prompt_length = sample.total_length() - response_length;
  if (response_length < 0 || sample.prompt_length < 1) {
    throw FrameError(
        fmt::format("a response of {} among {} tokens; there is one before it at least",
                    response_length, sample.total_length()));
  }
  if (sample.tokens != sampled.tokens || sample.prompt_length != sampled.prompt_length) return;
  train::each_taken_field(sampled, sample,
                          [](const train::TakenField& field, const auto& from, auto& to) {
                            if (field.stays_with_tokens) to = from;
                          });
}

void take_mask(const Numbers* row, int64_t response_length, train::TrainSample& sample) {
  sample.loss_mask.assign(static_cast<std::size_t>(response_length), 1);
  if (row == nullptr) return;
  if (static_cast<int64_t>(row->size()) != response_length) {
    throw FrameError(fmt::format("a loss mask of {} entries for {} response tokens", row->size(),
                                 response_length));
  }
  for (std::size_t i = 0; i < row->size(); ++i) {
    if ((*row)[i] != 0 && (*row)[i] != 1)
      throw FrameError("loss_masks has numbers that are neither 0 nor 1");
    sample.loss_mask[i] = (*row)[i] == 1 ? 1 : 0;
  }
}

std::vector<float> log_probs(const Numbers& row, int64_t response_length, std::string_view name) {
  if (static_cast<int64_t>(row.size()) != response_length) {
    throw FrameError(
        fmt::format("{} has {} numbers for {} response tokens", name, row.size(), response_length));
  }
  return {row.begin(), row.end()};
}

void assign_mask_totals(const std::optional<Numbers>& given, train::TrainBatch& batch) {
  std::map<int64_t, int64_t> totals;
  for (const train::TrainSample& sample : batch.samples) {
    totals[sample.rollout_id] +=
        std::accumulate(sample.loss_mask.begin(), sample.loss_mask.end(), int64_t{0});
  }
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    batch.samples[i].rollout_mask_total =
        given ? whole((*given)[i], "rollout_mask_sums") : totals[batch.samples[i].rollout_id];
  }
}

std::vector<const Sample*> flat(const std::vector<Group>& groups) {
  std::vector<const Sample*> samples;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) samples.push_back(&sample);
  }
  return samples;
}

}  // namespace

ProcessedRewards read_processed_rewards(const Payload& answer, std::size_t num_samples) {
  const Converted lists(answer.head, answer.columns, num_samples);
  return {.raw = required(lists.numbers("raw_rewards"), "raw_rewards"),
          .rewards = required(lists.numbers("rewards"), "rewards")};
}

train::TrainBatch read_converted(const Payload& answer, const std::vector<Group>& groups,
                                 std::vector<std::string>& without_place) {
  std::vector<std::string_view> known{
      "tokens",      "response_lengths",  "rewards",   "raw_reward",   "loss_masks",
      "rollout_ids", "rollout_mask_sums", "truncated", "source_names", "sample_indices"};
  const json::value* word = answer.head.if_contains("data");
  if (word == nullptr || !word->is_object()) throw FrameError("an answer without data");
  const json::object& data = word->get_object();
  const std::vector<const Sample*> sampled = flat(groups);
  const Converted lists(data, answer.columns, sampled.size());
  const auto tokens = required(lists.rows("tokens"), "tokens");
  const Numbers lengths = required(lists.numbers("response_lengths"), "response_lengths");
  const Numbers rewards = required(lists.numbers("rewards"), "rewards");
  const auto raw = lists.numbers("raw_reward");
  const auto masks = lists.rows("loss_masks");
  const auto rollout_ids = lists.numbers("rollout_ids");
  const auto truncated = lists.numbers("truncated");
  std::map<std::string_view, std::vector<Numbers>> per_token;
  const Sample none;
  const train::TrainSample sample_of_none;
  train::each_taken_field(none, sample_of_none,
                          [&](const train::TakenField& field, const auto&...) {
                            if (!field.is_per_token) return;
                            if (auto rows = lists.rows(field.name))
                              per_token[field.name] = std::move(*rows);
                            known.push_back(field.name);
                          });
  train::TrainBatch batch;
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    train::TrainSample& sample = batch.samples.emplace_back();
    const int64_t length = whole(lengths[i], "response_lengths");
    sample.ordinal = sampled[i]->ordinal;
    sample.group = sampled[i]->group;
    sample.rollout_id =
        rollout_ids ? whole((*rollout_ids)[i], "rollout_ids") : static_cast<int64_t>(i);
    take_tokens(tokens[i], length, *sampled[i], sample);
    take_mask(masks ? &(*masks)[i] : nullptr, length, sample);
    train::each_taken_field(none, sample,
                            [&](const train::TakenField& field, const auto&, auto& list) {
                              if constexpr (std::is_same_v<decltype(list), std::vector<float>&>) {
                                const auto rows = per_token.find(field.name);
                                if (rows != per_token.end())
                                  list = log_probs(rows->second[i], length, field.name);
                              }
                            });
    sample.reward = rewards[i];
    sample.raw_reward = raw ? (*raw)[i] : rewards[i];
    sample.truncated = truncated && (*truncated)[i] != 0;
    const json::value* source = sampled[i]->metadata.if_contains("source_name");
    const bool has_source = source != nullptr && source->is_string();
    sample.source_name = has_source ? std::string(source->get_string()) : "unknown";
  }
  assign_mask_totals(lists.numbers("rollout_mask_sums"), batch);
  batch.count_executions();
  for (const auto& member : data) {
    if (std::ranges::find(known, std::string_view(member.key())) == known.end())
      without_place.emplace_back(member.key());
  }
  return batch;
}

BatchFunctions::BatchFunctions(const config::RunConfig& config, Hosts& hosts,
                               QuestionHandler& handler,
                               std::function<int(std::string_view, const std::string&)> place)
    : config_(config), hosts_(hosts), question_handler_(handler), place_(std::move(place)) {}

Payload BatchFunctions::call(std::string_view flag, std::string_view hook, const std::string& path,
                             const std::vector<Group>& groups) const {
  auto returned = question_handler_.call(
      hosts_, {.hook = place_(hook, path),
               .subject = "the batch",
               .timeout = std::chrono::duration<double>(config_.plugin_timeout_seconds),
               .arguments =
                   [&groups](Columns& columns) {
                     json::array records;
                     for (const Sample* sample : flat(groups))
                       records.push_back(to_record(*sample, columns));
                     return json::object{{"samples", std::move(records)}};
                   },
               .stop = {},
               .answer = nullptr});
  if (!returned) throw ConfigError(fmt::format("{} {}: {}", flag, path, returned.error().message));
  return std::move(*returned);
}

train::TrainBatch BatchFunctions::make_batch(const std::vector<Group>& groups) const {
  const std::string& convert = config_.custom_convert_samples_to_train_data_path;
  const std::string& process = config_.custom_reward_post_process_path;
  std::string_view flag;
  std::string path;
  try {
    if (!convert.empty()) {
      flag = kConvertFlag;
      path = convert;
      std::vector<std::string> without_place;
      train::TrainBatch batch =
          read_converted(call(flag, "convert", path, groups), groups, without_place);
      for (const std::string& name : without_place)
        hosts_.tell_once(fmt::format("{} {}: nothing reads its key {}", flag, path, name));
      return batch;
    }
    train::TrainBatch batch = setup::make_batch(groups, config_);
    if (!config_.has_users_post_process()) return batch;
    flag = kRewardFlag;
    path = process;
    const ProcessedRewards processed = read_processed_rewards(
        call(flag, "reward_post_process", path, groups), batch.samples.size());
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      batch.samples[i].raw_reward = processed.raw[i];
      batch.samples[i].reward = processed.rewards[i];
    }
    return batch;
  } catch (const FrameError& error) {
    throw ConfigError(fmt::format("{} {}: {}", flag, path, error.what()));
  }
}

}  // namespace slime::plugin
