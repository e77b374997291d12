#include "view/sample_entry.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace slime::view {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr int kTop = 1;  // depth of a sample's own members

/// Fields that the index has.
enum class Field {
  kOther,
  kGroup,
  kIndexInGroup,
  kLength,
  kReward,
  kStatus,
  kVersions,
  kRemoved,
  kMask,
  kEngine,
  kTrainer
};

Field field_of(std::string_view name) {
  constexpr std::pair<std::string_view, Field> kNames[] = {{"group_index", Field::kGroup},
                                                           {"index_in_group", Field::kIndexInGroup},
                                                           {"response_length", Field::kLength},
                                                           {"reward", Field::kReward},
                                                           {"status", Field::kStatus},
                                                           {"weight_versions", Field::kVersions},
                                                           {"remove_sample", Field::kRemoved},
                                                           {"loss_mask", Field::kMask},
                                                           {"rollout_log_probs", Field::kEngine},
                                                           {"train_log_probs", Field::kTrainer}};
  for (const auto& [known, field] : kNames)
    if (name == known) return field;
  return Field::kOther;
}

/// Events of Boost.JSON's parser. Texts and arrays that the index does not have cost their bytes alone.
struct EntryHandler {
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using error_code = json::error_code;
  using view = json::string_view;

  explicit EntryHandler(std::string_view reward_key)
      : reward_key_(reward_key.empty() ? std::string_view("score") : reward_key) {
    entry.reward = entry.difference = kNone;
  }

  SampleEntry entry;
  bool is_object = false;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    if (depth_ == 0) is_object = true;
    if (depth_ == kTop) is_reward_record_ = field_ == Field::kReward;
    ++depth_;
    return true;
  }
  bool on_object_end(std::size_t, error_code&) { return end_of_container(); }
  bool on_array_begin(error_code&) {
    ++depth_;
    place_ = 0;
    return true;
  }
  bool on_array_end(std::size_t, error_code&) { return end_of_container(); }
  bool on_key_part(view part, std::size_t, error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(view part, std::size_t, error_code&) {
    key_.append(part.data(), part.size());
    if (depth_ == kTop) field_ = field_of(key_);
    is_reward_key_ = depth_ == kTop + 1 && is_reward_record_ && key_ == reward_key_;
    key_.clear();
    return true;
  }
  bool on_string_part(view part, std::size_t, error_code&) {
    if (depth_ == kTop && field_ == Field::kStatus) text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(view part, std::size_t, error_code&) {
    if (depth_ == kTop && field_ == Field::kStatus) {
      text_.append(part.data(), part.size());
      entry.status = status_from_string(text_).value_or(Status::kPending);
      text_.clear();
    }
    skip_in_list();
    return true;
  }
  bool on_number_part(view, error_code&) { return true; }
  bool on_int64(int64_t value, view, error_code&) {
    whole(value);
    return true;
  }
  bool on_uint64(uint64_t value, view, error_code&) {
    whole(value > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(value));
    return true;
  }
  bool on_double(double value, view, error_code&) {
    number(value);
    return true;
  }
  bool on_bool(bool value, error_code&) {
    if (depth_ == kTop && field_ == Field::kRemoved) entry.is_removed = value;
    number(value ? 1.0 : 0.0);
    return true;
  }
  bool on_null(error_code&) {
    skip_in_list();
    return true;
  }
  bool on_comment_part(view, error_code&) { return true; }
  bool on_comment(view, error_code&) { return true; }

  void finish() {
    const std::size_t count = std::min(engine_.size(), trainer_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (!mask_.empty() && (i >= mask_.size() || mask_[i] == 0)) continue;
      const float difference = std::abs(engine_[i] - trainer_[i]);
      if (!std::isnan(difference) && !(difference <= entry.difference))
        entry.difference = difference;
    }
  }

 private:
  bool end_of_container() {
    --depth_;
    if (depth_ == kTop) is_reward_record_ = is_reward_key_ = false;
    return true;
  }

  std::vector<float>* list() {
    if (depth_ != kTop + 1) return nullptr;
    if (field_ == Field::kMask) return &mask_;
    if (field_ == Field::kEngine) return &engine_;
    return field_ == Field::kTrainer ? &trainer_ : nullptr;
  }
  /// What is no number keeps its place.
  void skip_in_list() {
    if (std::vector<float>* values = list()) values->push_back(kNone);
  }

  void whole(int64_t value) {
    if (depth_ == kTop) {
      if (field_ == Field::kGroup) entry.group = value;
      if (field_ == Field::kIndexInGroup) entry.index_in_group = clamped(value);
      if (field_ == Field::kLength) entry.length = clamped(value);
    }
    // [[version, tokens], ...]
    if (depth_ == kTop + 2 && field_ == Field::kVersions && place_++ == 0) add_version(value);
    number(static_cast<double>(value));
  }
  void number(double value) {
    const bool is_reward =
        (depth_ == kTop && field_ == Field::kReward) || (depth_ == kTop + 1 && is_reward_key_);
    if (is_reward && std::isfinite(value)) entry.reward = static_cast<float>(value);
    if (std::vector<float>* values = list()) values->push_back(static_cast<float>(value));
  }
  void add_version(int64_t value) {
    if (value < 0 || value > INT32_MAX) return;
    const auto version = static_cast<int32_t>(value);
    const bool is_first = entry.oldest_version < 0;
    entry.oldest_version = is_first ? version : std::min(entry.oldest_version, version);
    entry.newest_version = std::max(entry.newest_version, version);
  }
  static uint32_t clamped(int64_t value) {
    return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
  }

  const std::string_view reward_key_;
  int depth_ = 0;
  Field field_ = Field::kOther;  // of the top member that is read
  bool is_reward_record_ = false, is_reward_key_ = false;
  int place_ = 0;  // in the innermost list
  std::string key_, text_;
  std::vector<float> mask_, engine_, trainer_;
};

}  // namespace

std::optional<SampleEntry> read_entry(std::string_view line, std::string_view reward_key) {
  json::parse_options options;
  options.max_depth = 64;
  json::basic_parser<EntryHandler> parser(options, reward_key);
  json::error_code error;
  parser.write_some(false, line.data(), line.size(), error);
  if (error || !parser.handler().is_object) return std::nullopt;
  parser.handler().finish();
  SampleEntry entry = parser.handler().entry;
  entry.bytes = static_cast<uint32_t>(std::min<std::size_t>(line.size(), UINT32_MAX));
  return entry;
}

}  // namespace slime::view
