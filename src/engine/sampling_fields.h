#pragma once

/// The sampling parameters, listed once: the name of each on the wire, its range, its place in
/// SamplingParams. Everything else goes through the list: frames between processes
/// (engine/request_fields.h), checks (engine/sampling_params.h), the HTTP protocols and users'
/// functions (engine/sampling_json.h), Python (python/slime/rollout/sampling_params.py).
///
/// A new parameter is a member of SamplingParams and a line here: docs/adding_a_sampling_parameter.md.

#include <limits>
#include <optional>
#include <string_view>

#include "core/sampling_bounds.h"
#include "engine/client.h"

namespace slime::engine {

/// What a number may be, or each number of a list.
struct SamplingRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
  std::optional<double> or_value = {};  // outside of the range, and allowed
};

struct SamplingField {
  std::string_view name;  // SGLang's: in sampling_params of /generate and of users' functions
  SamplingRange range = {};
  std::string_view openai_name = {};  // in OpenAI's protocols; empty: the same
  /// Users' functions find it in their sampling_params also when it is at its default, as the
  /// original's have it (null for an empty list).
  bool is_always_given = false;
  bool is_json = false;        // a text that may come as the JSON value itself
  std::size_t most = 64;       // texts of a list
  bool needs_members = false;  // an empty list is a mistake, not the default
};

/// The protocol that names the parameters.
enum class SamplingNames { kSglang, kOpenAi };

inline std::string_view name_of(const SamplingField& field, SamplingNames names) {
  const bool is_same = names == SamplingNames::kSglang || field.openai_name.empty();
  return is_same ? field.name : field.openai_name;
}

/// Calls fn(SamplingField, member) for each, in the order of frames. `sampling`: const or not.
template <typename Sampling, typename Fn>
void each_sampling_field(Sampling& sampling, const Fn& fn) {
  constexpr SamplingRange kTokens{.low = 0, .high = kMostTokens};
  constexpr SamplingRange kShare{.low = 0, .high = 1};
  constexpr SamplingRange kAboveZero{.low = 0, .high = 1, .excludes_low = true};
  constexpr SamplingRange kTopK{.low = 1, .high = kMostTokens, .or_value = -1};
  constexpr SamplingRange kTemperature{.low = 0, .high = kHighestTemperature};
  constexpr SamplingRange kPenalty{.low = -2, .high = 2};
  constexpr SamplingRange kRepetition{.low = kLowestRepetitionPenalty, .high = 2};
  constexpr SamplingRange kBias{.low = -kLargestLogitBias, .high = kLargestLogitBias};
  constexpr SamplingRange kAny{};
  constexpr bool kAlways = true;
  fn(SamplingField{"max_new_tokens", kTokens, "max_tokens", kAlways}, sampling.max_new_tokens);
  fn(SamplingField{"temperature", kTemperature, {}, kAlways}, sampling.temperature);
  fn(SamplingField{"top_p", kAboveZero, {}, kAlways}, sampling.top_p);
  fn(SamplingField{"top_k", kTopK, {}, kAlways}, sampling.top_k);
  fn(SamplingField{"min_p", kShare}, sampling.min_p);
  fn(SamplingField{"frequency_penalty", kPenalty}, sampling.frequency_penalty);
  fn(SamplingField{"presence_penalty", kPenalty}, sampling.presence_penalty);
  fn(SamplingField{"repetition_penalty", kRepetition}, sampling.repetition_penalty);
  fn(SamplingField{"min_new_tokens", kTokens, "min_tokens"}, sampling.min_new_tokens);
  fn(SamplingField{"stop", kAny, {}, kAlways}, sampling.stop);
  fn(SamplingField{"stop_token_ids", kAny, {}, kAlways}, sampling.stop_token_ids);
  fn(SamplingField{"logit_bias", kBias}, sampling.logit_bias);
  fn(SamplingField{"ignore_eos"}, sampling.ignore_eos);
  fn(SamplingField{"skip_special_tokens", kAny, {}, kAlways}, sampling.skip_special_tokens);
  fn(SamplingField{"spaces_between_special_tokens", kAny, {}, kAlways},
     sampling.spaces_between_special_tokens);
  fn(SamplingField{"no_stop_trim", kAny, {}, kAlways}, sampling.no_stop_trim);
  fn(SamplingField{.name = "json_schema", .is_json = true}, sampling.json_schema);
  fn(SamplingField{"regex"}, sampling.regex);
  fn(SamplingField{"ebnf"}, sampling.ebnf);
  fn(SamplingField{.name = "structural_tag", .is_json = true}, sampling.structural_tag);
  fn(SamplingField{.name = "allowed_token_ids", .needs_members = true}, sampling.allowed_token_ids);
  fn(SamplingField{.name = "bad_words", .most = 1024, .needs_members = true}, sampling.bad_words);
  fn(SamplingField{"sampling_seed", kAny, "seed"}, sampling.sampling_seed);
}

}  // namespace slime::engine
