#include "plugin/sample_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/sample_fields.h"
#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

/// Members that JSON has a form for.
template <typename T>
concept JsonMember =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_same_v<T, json::value> ||
    std::is_same_v<T, json::object> || std::is_same_v<T, std::optional<int64_t>>;

// A member's word, by its type: lists of numbers are columns.

template <JsonMember T>
json::value word_of(Columns&, const T& value) {
  return json::value_from(value);
}
template <typename T>
requires std::is_constructible_v<Column, std::vector<T>> json::value word_of(
    Columns& columns, const std::vector<T>& numbers) {
  return add_column(columns, numbers);
}
json::value word_of(Columns& columns, const std::vector<int64_t>& offsets) {
  return add_column(columns, std::vector<int32_t>(offsets.begin(), offsets.end()));
}
json::value word_of(Columns&, Status status) { return json::value(to_string(status)); }
json::value word_of(Columns&, const std::optional<int64_t>& number) { return *number; }
json::value word_of(Columns&, const std::vector<VersionRun>& versions) {
  json::array words;
  for (const VersionRun& run : versions) {
    const std::string word = std::to_string(run.version);
    if (words.empty() || words.back() != json::value(word)) words.emplace_back(word);
  }
  return words;
}
json::value word_of(Columns&, const DraftCounts& drafts) { return slime::to_json(drafts); }
json::value word_of(Columns&, const ResponseLength<const Sample>& length) {
  return length.sample.response_length();
}
json::value word_of(Columns& columns, const TextOfAnything<const std::string>& text) {
  return word_of(columns, text.text);
}

template <typename T>
T of_type(const json::value& value, std::string_view name) {
  try {
    return json::value_to<T>(value);
  } catch (const std::exception&) {
    throw FrameError(fmt::format("Sample.{} was set to {}", name, json_text(value)));
  }
}

// Sets a member that a function changed, by its type.

template <JsonMember T>
void set(const json::value& value, std::string_view name, const Columns&, Sample&, T& member) {
  member = of_type<T>(value, name);
}
void set(const json::value& value, std::string_view, const Columns&, Sample&, json::value& member) {
  member = value;
}
/// Of the numbers per token there is the mask.
void set(const json::value& value, std::string_view name, const Columns& columns, Sample& sample,
         std::vector<uint8_t>& mask) {
  const std::vector<int64_t> bits = whole_numbers(value, columns);
  if (static_cast<int64_t>(bits.size()) != sample.response_length()) {
    throw FrameError(fmt::format("Sample.{} was set to {} numbers for {} response tokens", name,
                                 bits.size(), sample.response_length()));
  }
  if (!std::ranges::all_of(bits, [](int64_t bit) { return bit == 0 || bit == 1; }))
    throw FrameError(fmt::format("Sample.{} was set to numbers that are neither 0 nor 1", name));
  mask.assign(bits.begin(), bits.end());
}

void set_status(const json::value& value, std::string_view who, Sample& sample) {
  const auto word = of_type<std::string>(value, "status");
  const std::optional<Status> status = status_from_string(word);
  if (!status || *status == Status::kPending || *status == Status::kAborted) {
    throw FrameError(fmt::format(
        "Sample.status was set to {}; a sample that is sampled is completed, truncated or failed",
        word));
  }
  sample.status = *status;
  if (*status == Status::kFailed)
    sample.failure = fmt::format("{}: the function set its status to failed", who);
}

/// False where no watched field has the name.
bool set_watched(const json::value& value, std::string_view name, const Columns& columns,
                 Sample& sample) {
  bool is_known = false;
  each_field(sample, [&](const SampleField& field, auto&& member) {
    if constexpr (requires { set(value, name, columns, sample, member); }) {
      if (field.python != InPython::kWatched || field.name != name) return;
      set(value, name, columns, sample, member);
      is_known = true;
    }
  });
  return is_known;
}

}  // namespace

json::object to_record(const Sample& sample, Columns& columns) {
  json::object record;
  each_field(sample, [&](const SampleField& field, const auto& member) {
    if (field.python == InPython::kHidden) return;
    if constexpr (requires { is_set(member); }) {
      if (field.python != InPython::kAlwaysGiven && !is_set(member)) return;
    }
    if constexpr (requires { word_of(columns, member); })
      record[field.name] = word_of(columns, member);
  });
  if (sample.engine_prompt_tokens > 0) {
    record["prefix_cache_info"] = {{"cached_tokens", sample.cached_tokens},
                                   {"total_prompt_tokens", sample.engine_prompt_tokens}};
  }
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
    } else if (name == "extra") {
      sample.user_fields[name] = of_type<json::object>(value, name);
    } else if (!set_watched(value, name, columns, sample)) {
      sample.user_fields[name] = value;
    }
  }
}

}  // namespace slime::plugin
