#include "core/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "core/base64.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/reward_number.h"
#include "core/sample_fields.h"

namespace slime {
namespace {

constexpr std::array<std::pair<Status, std::string_view>, 5> kStatusWords{
    {{Status::kPending, "pending"},
     {Status::kCompleted, "completed"},
     {Status::kTruncated, "truncated"},
     {Status::kAborted, "aborted"},
     {Status::kFailed, "failed"}}};

// A member as JSON, by its type.

template <typename T>
json::value json_of(const T& value) {
  return value;
}
template <typename T>
json::value json_of(const std::vector<T>& numbers) {
  json::array array;
  array.reserve(numbers.size());
  for (const T number : numbers) array.emplace_back(number);
  return array;
}
json::value json_of(const std::optional<int64_t>& number) {
  return number ? json::value(*number) : json::value();
}
json::value json_of(const std::string& text) { return json::value(std::string_view(text)); }
json::value json_of(Status status) { return json::value(to_string(status)); }
json::value json_of(const std::vector<VersionRun>& versions) {
  json::array runs;
  for (const VersionRun& run : versions) runs.push_back(json::array{run.version, run.num_tokens});
  return runs;
}
/// Numbers below 2^15 as base64 of two bytes each, the lower one first: a token of a large model has
/// hundreds of them.
json::value json_of(const std::vector<int16_t>& numbers) {
  std::string bytes;
  bytes.reserve(numbers.size() * 2);
  for (const int16_t number : numbers) {
    bytes += static_cast<char>(number & 0xFF);
    bytes += static_cast<char>(number >> 8 & 0xFF);
  }
  return json_of(to_base64(bytes));
}
json::value json_of(const DraftCounts& drafts) { return to_json(drafts); }
/// Without the bytes of attachments.
json::value json_of(const std::vector<MediaSpan>& media) {
  json::array spans;
  for (const MediaSpan& span : media) {
    const Attachment& what = *span.what;
    spans.push_back(json::object{{"begin", span.begin},
                                 {"end", span.end},
                                 {"key", fmt::format("{:016x}", what.key)},
                                 {"type", what.type},
                                 {"grid", json::array{what.t, what.h, what.w}}});
  }
  return spans;
}
template <typename SomeSample>
json::value json_of(const ResponseLength<SomeSample>& length) {
  return length.sample.response_length();
}
template <typename Text>
json::value json_of(const TextOfAnything<Text>& text) {
  return json_of(text.text);
}

// A member from JSON, by its type. What is absent stays at its default.

void read(const FieldReader& fields, std::string_view name, int64_t& number) {
  number = fields.integer(name).value_or(number);
}
void read(const FieldReader& fields, std::string_view name, std::optional<int64_t>& number) {
  number = fields.integer(name);
}
void read(const FieldReader& fields, std::string_view name, double& number) {
  number = fields.number(name).value_or(number);
}
void read(const FieldReader& fields, std::string_view name, bool& value) {
  value = fields.boolean(name).value_or(value);
}
void read(const FieldReader& fields, std::string_view name, std::string& text) {
  text = fields.text(name).value_or("");
}
void read(const FieldReader& fields, std::string_view name, json::value& value) {
  if (const json::value* found = fields.find(name); found != nullptr) value = *found;
}
void read(const FieldReader& fields, std::string_view name, json::object& object) {
  if (const json::object* found = fields.object(name)) object = *found;
}
template <typename T>
void read(const FieldReader& fields, std::string_view name, std::vector<T>& numbers) {
  numbers = fields.numbers<T>(name);
}
void read(const FieldReader& fields, std::string_view name, Status& status) {
  std::vector<std::string_view> words;
  for (const auto& [value, word] : kStatusWords) words.push_back(word);
  status = *status_from_string(*fields.required().one_of(name, words));
}
void read(const FieldReader& fields, std::string_view name, TextOfAnything<std::string> text) {
  const json::value* value = fields.find(name);
  if (value == nullptr) return;
  text.text = value->is_string() ? std::string(value->get_string()) : json_text(*value);
}
void read(const FieldReader& fields, std::string_view name, ResponseLength<Sample> length) {
  const auto num_tokens = static_cast<int64_t>(length.sample.tokens.size());
  const int64_t response_length = fields.integer(name).value_or(0);
  fields.expect(response_length >= 0 && response_length <= num_tokens, name,
                fmt::format("must be from 0 to the number of tokens ({})", num_tokens));
  length.sample.prompt_length = num_tokens - response_length;
}
void read(const FieldReader& fields, std::string_view name, std::vector<VersionRun>& versions) {
  const json::array* runs = fields.array(name);
  if (runs == nullptr) return;
  for (const json::value& run : *runs) {
    const json::array* pair = run.if_array();
    const bool is_run =
        pair != nullptr && pair->size() == 2 && (*pair)[0].is_int64() && (*pair)[1].is_int64();
    fields.expect(is_run, name, "must be a list of [version, tokens]");
    versions.push_back({(*pair)[0].get_int64(), (*pair)[1].get_int64()});
  }
}
void read(const FieldReader& fields, std::string_view name, DraftCounts& drafts) {
  if (const json::object* info = fields.object(name)) drafts = draft_counts_from(*info);
}
/// As it is written, or a list of the numbers.
void read(const FieldReader& fields, std::string_view name, std::vector<int16_t>& experts) {
  const json::value* value = fields.find(name);
  if (value == nullptr) return;
  if (value->is_string()) {
    const std::optional<std::string> bytes = from_base64(std::string_view(value->get_string()));
    fields.expect(bytes && bytes->size() % 2 == 0, name, "must be base64 of numbers of two bytes");
    for (std::size_t i = 0; bytes && i + 1 < bytes->size(); i += 2) {
      const auto low = static_cast<unsigned char>((*bytes)[i]);
      const auto high = static_cast<unsigned char>((*bytes)[i + 1]);
      experts.push_back(static_cast<int16_t>(high << 8 | low));
    }
    return;
  }
  for (const int32_t number : fields.numbers<int32_t>(name)) {
    fields.expect(number >= 0 && number < (1 << 15), name, "must be numbers below 32768");
    experts.push_back(static_cast<int16_t>(number));
  }
}
void read(const FieldReader& fields, std::string_view name, std::vector<MediaSpan>& media) {
  for (const FieldReader& fields_of_span : fields.list(name)) {
    const FieldReader span = fields_of_span.required();
    Attachment what{.type = *span.text("type")};
    const std::string key = *span.text("key");
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), what.key, 16);
    span.expect(key.size() == 16 && error == std::errc() && end == key.data() + key.size(), "key",
                "must be 16 digits of base 16");
    const std::vector<int64_t> grid = span.numbers<int64_t>("grid");
    span.expect(grid.size() == 3, "grid", "must be three numbers");
    what.t = grid[0];
    what.h = grid[1];
    what.w = grid[2];
    media.push_back({*span.integer("begin"), *span.integer("end"),
                     std::make_shared<Attachment>(std::move(what))});
  }
}

/// What more than one field has to agree on.
void check_lists(const FieldReader& fields, const Sample& sample) {
  const auto num_tokens = static_cast<int64_t>(sample.tokens.size());
  const int64_t response_length = sample.response_length();
  each_field(sample, [&](const SampleField& field, const auto& member) {
    if constexpr (requires { member.size(); }) {
      if (!field.is_per_token || member.empty() ||
          static_cast<int64_t>(member.size()) == response_length)
        return;
      fields.note(field.name, fmt::format("must be as long as the response ({}), not {}",
                                          response_length, member.size()));
    }
  });
  const std::vector<int64_t>& offsets = sample.top_p_offsets;
  if (!offsets.empty() &&
      (static_cast<int64_t>(offsets.size()) != response_length + 1 || offsets.front() != 0 ||
       offsets.back() != static_cast<int64_t>(sample.top_p_ids.size()) ||
       !std::ranges::is_sorted(offsets))) {
    fields.note(
        "rollout_top_p_token_offsets",
        fmt::format("must be {} rising numbers from 0 to the number of ids", response_length + 1));
  }
  if (!sample.top_p_log_probs.empty() && sample.top_p_log_probs.size() != sample.top_p_ids.size()) {
    fields.note("rollout_top_p_log_probs",
                fmt::format("must be as many as the ids ({}), not {}", sample.top_p_ids.size(),
                            sample.top_p_log_probs.size()));
  }
  const auto topk = static_cast<int64_t>(sample.topk_ids.size());
  if (sample.topk_ids.size() != sample.topk_log_probs.size() ||
      (topk != 0 && (response_length == 0 || topk % response_length != 0))) {
    fields.note("rollout_topk_token_ids",
                "and rollout_topk_log_probs must have as many numbers for each response token");
  }
  const auto experts = static_cast<int64_t>(sample.routed_experts.size());
  fields.expect(experts == 0 || (num_tokens > 1 && experts % (num_tokens - 1) == 0),
                "rollout_routed_experts", "must have as many numbers for each token but the last");
  if (const std::string problem = slime::problem_of(sample.media, num_tokens); !problem.empty())
    fields.note("media", fmt::format("has spans that are none: {}", problem));
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

int64_t Sample::topk() const {
  return topk_ids.empty() ? 0 : static_cast<int64_t>(topk_ids.size()) / response_length();
}

double Sample::reward_value(const std::string& reward_key) const {
  const Expected<double> number = reward_number(reward, reward_key);
  if (!number) throw ConfigError(fmt::format("sample {}: {}", ordinal, number.error().message));
  return *number;
}

json::object to_json(const DraftCounts& drafts) {
  json::object info{{"spec_accept_token_num", drafts.num_kept},
                    {"spec_draft_token_num", drafts.num_drafted},
                    {"spec_verify_ct", drafts.num_steps},
                    {"completion_token_num", drafts.num_tokens()}};
  if (drafts.num_compared > 0) {
    info["verify_compared_token_num"] = drafts.num_compared;
    info["verify_redrawn_token_num"] = drafts.num_redrawn;
  }
  return info;
}

DraftCounts draft_counts_from(const json::object& spec_info) {
  const auto count = [&](std::string_view name) {
    const json::value* value = spec_info.if_contains(name);
    return value != nullptr && value->is_int64() ? std::max<int64_t>(value->get_int64(), 0) : 0;
  };
  return {.num_drafted = count("spec_draft_token_num"),
          .num_kept = count("spec_accept_token_num"),
          .num_steps = count("spec_verify_ct"),
          .num_compared = count("verify_compared_token_num"),
          .num_redrawn = count("verify_redrawn_token_num")};
}

json::object to_json(const Sample& sample) {
  json::object object;
  each_field(sample, [&](const SampleField& field, const auto& member) {
    if (field.json == InJson::kNever) return;
    if constexpr (requires { is_set(member); }) {
      if (field.json == InJson::kWhenSet && !is_set(member)) return;
      if (field.json == InJson::kNullWhenEmpty && !is_set(member)) {
        object[field.name] = nullptr;
        return;
      }
    }
    object[field.name] = json_of(member);
  });
  return object;
}

Sample sample_from_json(const json::object& object, std::string_view where) {
  const FieldReader fields(object, fmt::format("{}: ", where));  // throws at the first problem
  Sample sample;
  each_field(sample,
             [&](const SampleField& field, auto&& member) { read(fields, field.name, member); });
  check_lists(fields, sample);
  return sample;
}

}  // namespace slime
