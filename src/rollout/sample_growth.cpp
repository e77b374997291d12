#include "rollout/sample_growth.h"

#include <algorithm>

#include "core/error.h"
#include "core/sample_fields.h"
#include "core/version_runs.h"

namespace slime::rollout {
namespace {

void append_kept_ids(Sample& sample, const engine::GenerateUpdate& generated) {
  if (generated.top_p_counts.empty()) {
    check(generated.output_ids.empty() || sample.top_p_offsets.empty(),
          "generated tokens have the top-p ids that earlier ones have");
    return;
  }
  const auto response = static_cast<std::size_t>(sample.response_length());
  check(generated.top_p_counts.size() == generated.output_ids.size(),
        "the engine gives top-p ids of each token");
  check(response == 0 || sample.top_p_offsets.size() == response + 1,
        "top-p ids follow response tokens that have them");
  if (sample.top_p_offsets.empty()) sample.top_p_offsets.push_back(0);
  for (const int64_t count : generated.top_p_counts)
    sample.top_p_offsets.push_back(sample.top_p_offsets.back() + count);
  sample.top_p_ids.insert(sample.top_p_ids.end(), generated.top_p_ids.begin(),
                          generated.top_p_ids.end());
  check(sample.top_p_offsets.back() == static_cast<int64_t>(sample.top_p_ids.size()),
        "the counts of top-p ids add up to them");
}

/// All of a response's tokens have them or none has.
void append_sampler_log_probs(Sample& sample, const engine::GenerateUpdate& generated) {
  sample.top_p_log_probs.insert(sample.top_p_log_probs.end(), generated.top_p_log_probs.begin(),
                                generated.top_p_log_probs.end());
  check(sample.top_p_log_probs.empty() || sample.top_p_log_probs.size() == sample.top_p_ids.size(),
        "the engine gives the log-prob of each top-p id, or of none");
  const auto width = static_cast<std::size_t>(sample.topk());
  check(generated.output_ids.empty() || sample.response_length() == 0 ||
            (width == 0) == generated.output_top.empty(),
        "generated tokens have the likeliest ids that earlier ones have");
  for (const auto& top : generated.output_top) {
    check(width == 0 || top.size() == width,
          "the engine gives as many likeliest ids of each token");
    for (const auto& [log_prob, id] : top) {
      sample.topk_ids.push_back(id);
      sample.topk_log_probs.push_back(log_prob);
    }
  }
}

/// Training computes the distribution without a grammar, so the log-probs are of that one.
void append_log_probs(Sample& sample, int64_t before, const engine::GenerateUpdate& generated) {
  const auto count = static_cast<int64_t>(generated.output_ids.size());
  const bool has_free = !generated.output_free_log_probs.empty();
  check(generated.num_constrained == 0 || has_free,
        "tokens under a grammar come with their log-probs without it");
  const std::vector<float>& log_probs =
      has_free ? generated.output_free_log_probs : generated.output_log_probs;
  sample.log_probs.insert(sample.log_probs.end(), log_probs.begin(), log_probs.end());
  if (generated.num_constrained == 0 && sample.constrained.empty()) return;
  sample.constrained.resize(static_cast<std::size_t>(before + count - generated.num_constrained));
  sample.constrained.resize(static_cast<std::size_t>(before + count), 1);
}

/// Row by row: each token but the last has as many numbers.
void append_experts(Sample& sample, const engine::GenerateUpdate& generated) {
  sample.routed_experts.insert(sample.routed_experts.end(), generated.routed_experts.begin(),
                               generated.routed_experts.end());
  const auto size = static_cast<int64_t>(sample.routed_experts.size());
  const int64_t rows = static_cast<int64_t>(sample.tokens.size()) - 1;
  check(size == 0 || (rows > 0 && size % rows == 0), "the engine tells the experts of each row");
}

/// The runs add up to the response of `before` tokens and the new ones, unless nothing is known of
/// any token.
void append_versions(Sample& sample, int64_t before, const engine::GenerateUpdate& generated) {
  if (sample.versions.empty() && generated.versions.empty()) return;
  const auto added = static_cast<int64_t>(generated.output_ids.size());
  const int64_t known = num_tokens(generated.versions);
  check(known <= added, "weight versions are those of generated tokens");
  append_run(sample.versions, {kNoVersion, before - num_tokens(sample.versions)});
  for (const VersionRun& run : generated.versions) append_run(sample.versions, run);
  append_run(sample.versions, {kNoVersion, added - known});
}

void end_with(Sample& sample, const engine::FinishReason& finish) {
  switch (finish.kind) {
    case engine::FinishReason::Kind::kStop:
      sample.status = Status::kCompleted;
      break;
    case engine::FinishReason::Kind::kLength:
      sample.status = Status::kTruncated;
      break;
    case engine::FinishReason::Kind::kAbort:
      // Our own bad request would be refused again; every other abort can be continued.
      if (finish.cause == engine::FinishReason::Cause::kBadRequest) {
        sample.status = Status::kFailed;
        sample.failure = finish.message;
      } else {
        sample.status = Status::kAborted;
        sample.failure = "";
      }
      break;
  }
}

}  // namespace

int64_t remaining_tokens(const Sample& sample, const ResponseRules& rules) {
  int64_t remaining = rules.sampling.max_new_tokens - sample.response_length();
  if (rules.max_context_length) {
    remaining =
        std::min(remaining, *rules.max_context_length - static_cast<int64_t>(sample.tokens.size()));
  }
  return std::max<int64_t>(remaining, 0);
}

void append_generated(Sample& sample, const engine::GenerateUpdate& generated) {
  const int64_t before = sample.response_length();
  check(generated.output_ids.size() == generated.output_log_probs.size(),
        "the engine gives one log-prob per token");
  check(generated.finish.has_value(), "a finished request has a reason");
  check(generated.output_ids.empty() || sample.log_probs.size() == static_cast<std::size_t>(before),
        "generated log-probs follow response tokens that have them");
  append_kept_ids(sample, generated);
  append_sampler_log_probs(sample, generated);
  append_versions(sample, before, generated);
  sample.tokens.insert(sample.tokens.end(), generated.output_ids.begin(),
                       generated.output_ids.end());
  append_experts(sample, generated);
  append_log_probs(sample, before, generated);
  // An empty mask means all ones.
  if (!sample.loss_mask.empty())
    sample.loss_mask.resize(static_cast<std::size_t>(sample.response_length()), 1);
  sample.engine_prompt_tokens += generated.prompt_tokens;
  sample.cached_tokens += generated.cached_tokens;
  sample.drafts += generated.drafts;
  sample.generation_seconds += generated.total_seconds;
  end_with(sample, *generated.finish);
}

void cut_response(Sample& sample, int64_t length) {
  const int64_t surplus = sample.response_length() - length;
  check(surplus >= 0 && length >= 0, "a response is cut to a part of it");
  sample.status = Status::kAborted;
  sample.reward = nullptr;
  sample.failure.clear();
  if (surplus == 0) return;
  const auto kept = static_cast<std::size_t>(length);
  const auto likeliest = kept * static_cast<std::size_t>(sample.topk());
  sample.topk_ids.resize(likeliest);
  sample.topk_log_probs.resize(likeliest);
  const auto rows = static_cast<int64_t>(sample.tokens.size()) - 1;
  if (!sample.routed_experts.empty()) {
    const int64_t width = static_cast<int64_t>(sample.routed_experts.size()) / rows;
    // Nothing is recorded of no token.
    sample.routed_experts.resize(length == 0 ? 0
                                             : static_cast<std::size_t>(width * (rows - surplus)));
  }
  sample.tokens.resize(static_cast<std::size_t>(sample.prompt_length) + kept);
  each_field(sample, [kept](const SampleField& field, auto&& member) {
    if constexpr (requires { member.resize(kept); })
      if (field.is_per_token && !member.empty()) member.resize(kept);
  });
  std::erase_if(sample.media, [&](const MediaSpan& span) {
    return span.end > static_cast<int64_t>(sample.tokens.size());
  });
  if (!sample.top_p_offsets.empty()) {
    sample.top_p_offsets.resize(kept + 1);
    sample.top_p_ids.resize(static_cast<std::size_t>(sample.top_p_offsets.back()));
    if (!sample.top_p_log_probs.empty()) sample.top_p_log_probs.resize(sample.top_p_ids.size());
    if (kept == 0) sample.top_p_offsets.clear();  // nothing is recorded of no token
  }
  int64_t left = surplus;
  while (left > 0 && !sample.versions.empty()) {
    VersionRun& last = sample.versions.back();
    const int64_t taken = std::min(left, last.num_tokens);
    last.num_tokens -= taken;
    left -= taken;
    if (last.num_tokens == 0) sample.versions.pop_back();
  }
}

}  // namespace slime::rollout
