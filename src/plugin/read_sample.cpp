#include "plugin/read_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include "core/sample_fields.h"
#include "core/sampler_record.h"
#include "core/version_runs.h"
#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

/// One field after the other is taken out of the record; what is left over is the user's.
class Fields {
 public:
  Fields(const json::object& record, const Columns& columns) : record_(record), columns_(columns) {}

  /// Null where the function left it at its default.
  const json::value* take(std::string_view name) {
    taken_.insert(name);
    const json::value* value = record_.if_contains(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  template <typename T>
  T take_as(std::string_view name, T otherwise, std::string_view kind) {
    const json::value* value = take(name);
    if (value == nullptr) return otherwise;
    try {
      return json::value_to<T>(*value);
    } catch (const std::exception&) {
      throw FrameError(fmt::format("Sample.{} is {}; it should be {}", name,
                                   json_text(*value).substr(0, 80), kind));
    }
  }

  std::vector<int64_t> take_whole(std::string_view name) {
    const json::value* value = take(name);
    if (value == nullptr) return {};
    try {
      return whole_numbers(*value, columns_);
    } catch (const FrameError& error) {
      throw FrameError(fmt::format("Sample.{}: {}", name, error.what()));
    }
  }

  std::vector<float> take_floats(std::string_view name) {
    const json::value* value = take(name);
    if (value == nullptr) return {};
    std::vector<float> numbers;
    try {
      numbers = floats(*value, columns_);
    } catch (const FrameError& error) {
      throw FrameError(fmt::format("Sample.{}: {}", name, error.what()));
    }
    const auto odd = std::ranges::find_if_not(numbers, [](float x) { return std::isfinite(x); });
    if (odd != numbers.end()) {
      throw FrameError(fmt::format("Sample.{}[{}] is {}; log-probs are finite", name,
                                   odd - numbers.begin(), *odd));
    }
    return numbers;
  }

  json::object rest() const {
    json::object rest;
    for (const auto& member : record_) {
      if (!taken_.contains(member.key())) rest[member.key()] = member.value();
    }
    return rest;
  }

 private:
  const json::object& record_;
  const Columns& columns_;
  std::set<std::string_view> taken_;
};

/// A list that is there has an entry for each response token.
void check_length(std::string_view name, std::size_t size, const Sample& sample) {
  if (size == 0 || static_cast<int64_t>(size) == sample.response_length()) return;
  throw FrameError(fmt::format("Sample.{} has {} entries for {} response tokens", name, size,
                               sample.response_length()));
}

void take_tokens(Fields& fields, const SampleLimits& limits, Sample& sample) {
  const std::vector<int64_t> tokens = fields.take_whole("tokens");
  const auto count = static_cast<int64_t>(tokens.size());
  const auto response = fields.take_as<int64_t>("response_length", 0, "a whole number");
  if (count > limits.max_tokens) {
    throw FrameError(
        fmt::format("Sample.tokens has {} tokens; the model takes {}", count, limits.max_tokens));
  }
  if (response < 0 || response >= std::max<int64_t>(count, 1)) {
    throw FrameError(fmt::format(
        "Sample.response_length is {} of {} tokens; tokens are the prompt, at least one, and the "
        "response behind it",
        response, count));
  }
  const auto odd =
      std::ranges::find_if(tokens, [&](int64_t id) { return id < 0 || id >= limits.vocab_size; });
  if (odd != tokens.end()) {
    throw FrameError(fmt::format("Sample.tokens[{}] is {}; ids are from 0 to {}",
                                 odd - tokens.begin(), *odd, limits.vocab_size - 1));
  }
  sample.tokens.assign(tokens.begin(), tokens.end());
  sample.prompt_length = count - response;
}

// Fields that are read by their type.

void take(Fields& fields, std::string_view name, std::string& text) {
  text = fields.take_as<std::string>(name, "", "a string");
}
void take(Fields& fields, std::string_view name, bool& value) {
  value = fields.take_as<bool>(name, false, "True or False");
}
void take(Fields& fields, std::string_view name, json::object& object) {
  object = fields.take_as<json::object>(name, {}, "a dictionary");
}
void take(Fields& fields, std::string_view name, json::value& value) {
  const json::value* word = fields.take(name);
  value = word == nullptr ? json::value() : *word;
}
void take(Fields& fields, std::string_view name, std::optional<int64_t>& number) {
  const json::value* word = fields.take(name);
  if (word == nullptr) return;
  if (!word->is_int64()) {
    throw FrameError(
        fmt::format("Sample.{} is {}; it should be a whole number", name, json_text(*word)));
  }
  number = word->get_int64();
}
void take(Fields& fields, std::string_view name, std::vector<float>& numbers) {
  numbers = fields.take_floats(name);
}
void take(Fields& fields, std::string_view name, std::vector<uint8_t>& mask) {
  const std::vector<int64_t> bits = fields.take_whole(name);
  if (!std::ranges::all_of(bits, [](int64_t bit) { return bit == 0 || bit == 1; }))
    throw FrameError(fmt::format("Sample.{} has numbers that are neither 0 nor 1", name));
  mask.assign(bits.begin(), bits.end());
}

void take_by_type(Fields& fields, Sample& sample) {
  each_field(sample, [&](const SampleField& field, auto&& member) {
    if constexpr (requires { take(fields, field.name, member); }) {
      if (field.python < InPython::kReturned) return;
      take(fields, field.name, member);
      if constexpr (requires { member.size(); })
        if (field.is_per_token) check_length(field.name, member.size(), sample);
    }
  });
}

std::vector<TokenId> take_ids(Fields& fields, std::string_view name, const SampleLimits& limits) {
  const std::vector<int64_t> ids = fields.take_whole(name);
  for (const int64_t id : ids) {
    if (id < 0 || id >= limits.vocab_size) {
      throw FrameError(
          fmt::format("Sample.{} has {}; ids are from 0 to {}", name, id, limits.vocab_size - 1));
    }
  }
  return {ids.begin(), ids.end()};
}

void take_nucleus(Fields& fields, const SampleLimits& limits, Sample& sample) {
  std::vector<TokenId> ids = take_ids(fields, "rollout_top_p_token_ids", limits);
  sample.top_p_log_probs = fields.take_floats("rollout_top_p_log_probs");
  sample.top_p_offsets = fields.take_whole("rollout_top_p_token_offsets");
  const std::vector<int64_t>& offsets = sample.top_p_offsets;
  if (!sample.top_p_log_probs.empty() && sample.top_p_log_probs.size() != ids.size()) {
    throw FrameError(fmt::format("Sample.rollout_top_p_log_probs has {} numbers for {} ids",
                                 sample.top_p_log_probs.size(), ids.size()));
  }
  if (offsets.empty() && ids.empty()) return;
  if (static_cast<int64_t>(offsets.size()) != sample.response_length() + 1 ||
      offsets.front() != 0 || offsets.back() != static_cast<int64_t>(ids.size()) ||
      !std::ranges::is_sorted(offsets)) {
    throw FrameError(fmt::format(
        "Sample.rollout_top_p_token_offsets should be {} rising numbers from 0 to the number of "
        "ids, {}",
        sample.response_length() + 1, ids.size()));
  }
  sample.top_p_ids = std::move(ids);
}

void take_likeliest(Fields& fields, const SampleLimits& limits, Sample& sample) {
  sample.topk_ids = take_ids(fields, "rollout_topk_token_ids", limits);
  sample.topk_log_probs = fields.take_floats("rollout_topk_log_probs");
  const auto count = static_cast<int64_t>(sample.topk_ids.size());
  const int64_t length = sample.response_length();
  const bool is_table = count == 0 || (length > 0 && count % length == 0);
  if (is_table && sample.topk_ids.size() == sample.topk_log_probs.size()) return;
  throw FrameError(
      fmt::format("Sample.rollout_topk_token_ids and rollout_topk_log_probs should both be [{}, "
                  "K]; they have {} and {} "
                  "numbers",
                  length, count, sample.topk_log_probs.size()));
}

bool has_tokens_of(const Sample& given, const Sample& sample) {
  return sample.tokens == given.tokens && sample.prompt_length == given.prompt_length;
}

/// int32 [tokens - 1, layers, experts per token]. They are not sent, so the same tokens keep theirs.
void take_experts(Fields& fields, const Columns& columns, const Sample& given, Sample& sample) {
  const json::value* word = fields.take("rollout_routed_experts");
  if (word == nullptr) {
    if (has_tokens_of(given, sample)) sample.routed_experts = given.routed_experts;
    return;
  }
  const json::value* shape = word->is_object() ? word->get_object().if_contains("shape") : nullptr;
  if (shape == nullptr) throw FrameError("Sample.rollout_routed_experts has no shape");
  const std::vector<int64_t> sizes = whole_numbers(*shape, columns);
  const std::vector<int64_t> numbers = whole_numbers(*word, columns);
  const auto rows = static_cast<int64_t>(sample.tokens.size()) - 1;
  const auto is_size = [](int64_t size) { return size >= 0 && size < (int64_t{1} << 20); };
  if (sizes.size() != 3 || sizes[0] != rows || !std::ranges::all_of(sizes, is_size) ||
      sizes[0] * sizes[1] * sizes[2] != static_cast<int64_t>(numbers.size()))
    throw FrameError(fmt::format(
        "Sample.rollout_routed_experts should be [{}, layers, experts per token]", rows));
  for (const int64_t number : numbers) {
    if (number < 0 || number > std::numeric_limits<int16_t>::max())
      throw FrameError(fmt::format("Sample.rollout_routed_experts has {}", number));
    sample.routed_experts.push_back(static_cast<int16_t>(number));
  }
}

std::optional<WeightVersion> version_of(const json::value& word) {
  if (word.is_int64()) return word.get_int64();
  if (!word.is_string()) return std::nullopt;
  const std::string_view text = word.get_string();
  WeightVersion version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return version;
}

/// How many tokens each stretch has that the mask trains.
std::vector<VersionRun> stretches_of(const Sample& sample) {
  std::vector<VersionRun> stretches;
  const auto length = static_cast<std::size_t>(sample.response_length());
  for (std::size_t i = 0; i < length; ++i) {
    const bool is_sampled = sample.loss_mask.empty() || sample.loss_mask[i] == 1;
    append_run(stretches, {is_sampled ? 0 : kNoVersion, 1});
  }
  return stretches;
}

/// The host knows which call of the engine made which tokens (version_runs). A function that asked in
/// other ways has one word for each call: stretch by stretch where there are as many, else the oldest
/// one for all.
void take_versions(Fields& fields, Sample& sample) {
  const json::value* runs = fields.take("version_runs");
  const auto words =
      fields.take_as<json::array>("weight_versions", {}, "a list with a word for each call");
  if (runs != nullptr && runs->is_array()) {
    for (const json::value& run : runs->get_array()) {
      const std::vector<int64_t> pair = whole_numbers(run, {});
      if (pair.size() != 2 || pair[0] < kNoVersion || pair[1] < 0 ||
          pair[1] > sample.response_length())
        throw FrameError("version_runs should be pairs of version and tokens");
      append_run(sample.versions, {pair[0], pair[1]});
    }
    if (num_tokens(sample.versions) != sample.response_length())
      throw FrameError("version_runs are of another response");
    return;
  }
  std::vector<WeightVersion> versions;
  for (const json::value& word : words) {
    if (const auto version = version_of(word)) versions.push_back(*version);
  }
  if (versions.empty() || sample.response_length() == 0) return;
  std::vector<VersionRun> stretches = stretches_of(sample);
  const auto num_sampled = std::ranges::count_if(
      stretches, [](const VersionRun& run) { return run.version != kNoVersion; });
  const bool is_one_each = num_sampled == static_cast<int64_t>(versions.size());
  const WeightVersion oldest = *std::ranges::min_element(versions);
  std::size_t next = 0;
  for (const VersionRun& run : stretches) {
    const WeightVersion version = run.version == kNoVersion ? kNoVersion
                                  : is_one_each             ? versions[next++]
                                                            : oldest;
    append_run(sample.versions, {version, run.num_tokens});
  }
}

void take_status(Fields& fields, const Sample& given, Sample& sample) {
  const auto word = fields.take_as<std::string>("status", "pending", "one of Sample.Status");
  const std::optional<Status> status = status_from_string(word);
  if (!status) throw FrameError(fmt::format("Sample.status is {}", word));
  sample.status = *status;
  if (sample.status != Status::kFailed) return;
  const bool had_failed = given.status == Status::kFailed && !given.failure.empty();
  sample.failure = had_failed ? given.failure : "the function set its status to failed";
}

/// Tokens that an earlier call drew keep the versions that they had.
void keep_versions(const Sample& given, Sample& sample) {
  if (has_tokens_of(given, sample)) {
    if (!given.versions.empty()) sample.versions = given.versions;
    return;
  }
  const int64_t before = given.response_length();
  const bool goes_on = before > 0 && !given.versions.empty() && !sample.versions.empty() &&
                       sample.prompt_length == given.prompt_length &&
                       sample.tokens.size() >= given.tokens.size() &&
                       std::equal(given.tokens.begin(), given.tokens.end(), sample.tokens.begin());
  if (!goes_on) return;
  std::vector<VersionRun> versions = given.versions;
  int64_t left = before;  // to be passed over
  for (VersionRun run : sample.versions) {
    const int64_t passed = std::min(left, run.num_tokens);
    left -= passed;
    run.num_tokens -= passed;
    append_run(versions, run);
  }
  sample.versions = std::move(versions);
}

/// What the engine read and had already, as Sample.append_response_tokens counts it.
void take_cache_counts(Fields& fields, Sample& sample) {
  const auto counts = fields.take_as<json::object>("prefix_cache_info", {}, "a record of counts");
  const auto count = [&](std::string_view name) {
    const json::value* value = counts.if_contains(name);
    return value != nullptr && value->is_int64() ? std::max<int64_t>(value->get_int64(), 0) : 0;
  };
  sample.cached_tokens = count("cached_tokens");
  sample.engine_prompt_tokens = count("total_prompt_tokens");
}

/// As Sample.append_response_tokens counts them.
void take_drafts(Fields& fields, Sample& sample) {
  sample.drafts =
      draft_counts_from(fields.take_as<json::object>("spec_info", {}, "a record of counts"));
}

/// Text; messages stay among the user's fields, beside the text that they were rendered to.
void take_prompt(Fields& fields, const json::object& record, const Sample& given, Sample& sample) {
  const json::value* prompt = record.if_contains("prompt");
  sample.prompt = given.prompt;
  if (prompt == nullptr || prompt->is_null()) return;
  if (prompt->is_string()) {
    sample.prompt = fields.take_as<std::string>("prompt", "", "");
  } else if (sample.prompt.empty()) {
    sample.prompt = json_text(*prompt);
  }
}

/// Attachments are not sent, so those of tokens that are the same stay.
void keep_media(const Sample& given, Sample& sample) {
  const auto same = std::ranges::mismatch(given.tokens, sample.tokens).in1 - given.tokens.begin();
  for (const MediaSpan& span : given.media) {
    if (span.end <= same) sample.media.push_back(span);
  }
}

}  // namespace

Sample read_sample(const json::object& record, const Columns& columns, const Sample& given,
                   const SampleLimits& limits) {
  Fields fields(record, columns);
  Sample sample;
  sample.ordinal = given.ordinal;
  sample.group = given.group;
  sample.index_in_group = given.index_in_group;
  sample.generation_seconds = given.generation_seconds;
  fields.take("index");
  fields.take("group_index");
  take_tokens(fields, limits, sample);
  take_status(fields, given, sample);
  take_prompt(fields, record, given, sample);
  take_by_type(fields, sample);
  keep_media(given, sample);
  take_nucleus(fields, limits, sample);
  take_likeliest(fields, limits, sample);
  take_experts(fields, columns, given, sample);
  take_versions(fields, sample);
  keep_versions(given, sample);
  take_cache_counts(fields, sample);
  take_drafts(fields, sample);
  sample.user_fields = fields.rest();
  return sample;
}

void check_sampled(const Sample& sample, const SampleLimits& limits) {
  if (sample.status != Status::kCompleted && sample.status != Status::kTruncated) return;
  if (sample.response_length() == 0) {
    throw FrameError(
        "the sample has no response token; one that should not count has remove_sample set, and "
        "one token at least");
  }
  if (limits.needs_log_probs && sample.log_probs.empty()) {
    throw FrameError(
        "Sample.rollout_log_probs is missing, which this run trains with: ask the engine with "
        "return_logprob");
  }
  if (!limits.needs_support && limits.needs_head == 0) return;
  const SamplerRecord record{
      .tokens = std::span(sample.tokens).subspan(static_cast<std::size_t>(sample.prompt_length)),
      .log_probs = sample.log_probs,
      .loss_mask = sample.loss_mask,
      .ids = limits.needs_support ? sample.top_p_ids : sample.topk_ids,
      .id_log_probs = limits.needs_support ? sample.top_p_log_probs : sample.topk_log_probs};
  const std::string problem = limits.needs_support
                                  ? problem_of_support(record, sample.top_p_offsets)
                                  : problem_of_head(record, limits.needs_head);
  if (problem.empty()) return;
  throw FrameError(
      fmt::format("the sample {}, which --use-score-centering trains with; "
                  "Sample.append_response_tokens(args, ...) fills "
                  "{} from the engine's meta_info",
                  problem,
                  limits.needs_support ? "rollout_top_p_token_ids, _token_offsets and _log_probs"
                                       : "rollout_topk_token_ids and _log_probs"));
}

}  // namespace slime::plugin
