#pragma once

/// The fields of a Sample, listed once: line JSON (core/sample.cpp), records of plug-in hosts
/// (plugin/sample_record.cpp, plugin/read_sample.cpp) and what ends with a response
/// (rollout/verdict.cpp, rollout/sample_growth.cpp) derive from this list. The type of a member says how it is written and
/// read; its SampleField says where it goes.
///
/// A new field is a member in core/sample.h, a line here, an attribute in python/slime/utils/types.py,
/// and, where training reads it, a member and a line in train/train_batch.h.

#include <string_view>
#include <type_traits>

#include "core/sample.h"

namespace slime {

/// When line JSON has the field.
enum class InJson { kNever, kAlways, kWhenSet, kNullWhenEmpty };

/// Reach of a field into users' Python functions.
enum class InPython {
  kHidden,
  kAlwaysGiven,
  kGiven,     // where it is set; from samples that functions return it is read by a rule of its own
  kReturned,  // and by its type
  kWatched    // and also from one that a function changed and did not return
};

struct SampleField {
  std::string_view name;  // the original's
  InJson json = InJson::kAlways;
  InPython python = InPython::kHidden;
  bool is_per_token = false;    // a list with an entry for each response token, or an empty one
  bool is_of_response = false;  // at its default again when the response is thrown away
};

/// Stands for Sample::prompt_length, which records say by the length of the response, after `tokens`.
template <typename SomeSample>
struct ResponseLength {
  SomeSample& sample;
};

/// A text where records may have something else, which is kept as JSON text.
template <typename Text>
struct TextOfAnything {
  Text& text;
};
template <typename Text>
TextOfAnything(Text&) -> TextOfAnything<Text>;

/// Calls fn(SampleField, member) for each field, in the order of line JSON. `sample` is const or not; a
/// member is a reference, or one of the two structs above.
template <typename SomeSample, typename Fn>
void each_field(SomeSample& sample, const Fn& fn) {
  using enum InJson;
  using enum InPython;
  constexpr bool kPerToken = true, kOfResponse = true;
  // The two lists of a nucleus are written together.
  const InJson nucleus = sample.top_p_offsets.empty() ? kNever : kAlways;
  fn(SampleField{"group_index", kAlways, kAlwaysGiven}, sample.group);
  fn(SampleField{"index", kAlways, kAlwaysGiven}, sample.ordinal);
  fn(SampleField{"index_in_group"}, sample.index_in_group);
  fn(SampleField{"rollout_id", kAlways, kWatched}, sample.rollout_id);
  fn(SampleField{"prompt", kAlways, kAlwaysGiven}, TextOfAnything{sample.prompt});
  fn(SampleField{"tokens", kAlways, kGiven}, sample.tokens);
  fn(SampleField{"media", kWhenSet}, sample.media);
  fn(SampleField{"response", kAlways, kWatched, false, kOfResponse}, sample.response);
  fn(SampleField{"response_length", kAlways, kAlwaysGiven}, ResponseLength<SomeSample>{sample});
  fn(SampleField{"label", kAlways, kWatched}, sample.label);
  fn(SampleField{"reward", kAlways, kWatched, false, kOfResponse}, sample.reward);
  fn(SampleField{"loss_mask", kNullWhenEmpty, kWatched, kPerToken, kOfResponse}, sample.loss_mask);
  fn(SampleField{"weight_versions", kAlways, kGiven, false, kOfResponse}, sample.versions);
  fn(SampleField{"rollout_log_probs", kAlways, kReturned, kPerToken, kOfResponse},
     sample.log_probs);
  fn(SampleField{"rollout_constrained", kWhenSet, kReturned, kPerToken, kOfResponse},
     sample.constrained);
  fn(SampleField{"teacher_log_probs", kWhenSet, kReturned, kPerToken, kOfResponse},
     sample.teacher_log_probs);
  fn(SampleField{"rollout_top_p_token_ids", nucleus, kGiven, false, kOfResponse}, sample.top_p_ids);
  fn(SampleField{"rollout_top_p_token_offsets", nucleus, kGiven, false, kOfResponse},
     sample.top_p_offsets);
  fn(SampleField{"rollout_top_p_log_probs", kWhenSet, kGiven, false, kOfResponse},
     sample.top_p_log_probs);
  fn(SampleField{"rollout_topk_token_ids", kWhenSet, kGiven, false, kOfResponse}, sample.topk_ids);
  fn(SampleField{"rollout_topk_log_probs", kWhenSet, kGiven, false, kOfResponse},
     sample.topk_log_probs);
  fn(SampleField{"rollout_routed_experts", kWhenSet, kHidden, false, kOfResponse},
     sample.routed_experts);
  fn(SampleField{"remove_sample", kAlways, kWatched}, sample.remove_sample);
  fn(SampleField{"status", kAlways, kAlwaysGiven, false, kOfResponse}, sample.status);
  fn(SampleField{"failure", kWhenSet, kHidden, false, kOfResponse}, sample.failure);
  fn(SampleField{"metadata", kAlways, kWatched}, sample.metadata);
  fn(SampleField{"custom_rm_path", kWhenSet, kReturned}, sample.custom_rm_path);
  fn(SampleField{"user_fields", kWhenSet}, sample.user_fields);
  fn(SampleField{"total_prompt_tokens", kAlways, kHidden, false, kOfResponse},
     sample.engine_prompt_tokens);
  fn(SampleField{"cached_tokens", kAlways, kHidden, false, kOfResponse}, sample.cached_tokens);
  fn(SampleField{"spec_info", kWhenSet, kGiven, false, kOfResponse}, sample.drafts);
  fn(SampleField{"generation_seconds", kAlways, kHidden, false, kOfResponse},
     sample.generation_seconds);
}

/// Whether a member is not at its default, of the types in the list.
template <typename Member>
requires std::is_default_constructible_v<Member>
bool is_set(const Member& member) {
  if constexpr (std::is_same_v<Member, json::value>) {
    return !member.is_null();
  } else if constexpr (requires { member.empty(); }) {
    return !member.empty();
  } else if constexpr (requires { member.has_value(); }) {
    return member.has_value();
  } else {
    return member != Member{};
  }
}

}  // namespace slime
