#include "sample_append.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/version_runs.h"

namespace slime::golden {
namespace {

/// What is wrong with a segment, before anything is changed; empty: nothing.
std::string problem_with(const Sample& sample, const Segment& segment,
                         const RoutingShape& routing) {
  const std::size_t added = segment.tokens.size();
  const auto response = static_cast<std::size_t>(sample.response_length());
  if (!segment.is_trained && segment.log_probs) {
    return "tokens of the environment must not bring log-probs";
  }
  if (segment.is_trained && added > 0) {
    if (!segment.log_probs) return "generated tokens need log-probs";
    if (segment.log_probs->size() != added) {
      return fmt::format("{} log-probs for {} tokens", segment.log_probs->size(), added);
    }
    if (sample.log_probs.size() != response) {
      return "generated log-probs cannot follow response tokens without recorded ones";
    }
  }
  if (num_tokens(segment.versions) > (segment.is_trained ? static_cast<int64_t>(added) : 0))
    return "weight versions of more tokens than were generated";
  if (segment.kept_ids) {
    const auto& [ids, offsets] = *segment.kept_ids;
    if (offsets.size() != added + 1 || offsets.front() != 0 ||
        offsets.back() != static_cast<int64_t>(ids.size()) || !std::ranges::is_sorted(offsets)) {
      return fmt::format("top-p offsets should rise from 0 to the {} ids, one more than {} tokens",
                         ids.size(), added);
    }
    if (response > 0 && sample.top_p_offsets.size() != response + 1) {
      return "top-p ids cannot follow response tokens without recorded ones";
    }
  } else if (segment.is_trained && added > 0 && !sample.top_p_offsets.empty()) {
    return "generated tokens lack the top-p ids that earlier ones have";
  }
  if (segment.routed_experts) {
    const auto& [ids, first_row] = *segment.routed_experts;
    const auto total = static_cast<int64_t>(sample.tokens.size() + added);
    const int64_t width = routing.num_layers * routing.topk;
    const int64_t expected = std::max<int64_t>(0, total - 1 - first_row) * width;
    if (static_cast<int64_t>(ids.size()) != expected) {
      return fmt::format("{} routed experts, expected ({} - 1 - {}) x {} layers x {}", ids.size(),
                         total, first_row, routing.num_layers, routing.topk);
    }
    if (first_row * width > static_cast<int64_t>(sample.routed_experts.size())) {
      return fmt::format("routed experts from row {}, but earlier rows are not recorded",
                         first_row);
    }
  }
  return {};
}

void append_masked(Sample& sample, const Segment& segment) {
  const auto response = static_cast<std::size_t>(sample.response_length());
  const std::size_t grown = response + segment.tokens.size();
  // An empty mask means all ones; it has to be written out once an untrained token comes.
  if (!segment.is_trained && sample.loss_mask.empty()) sample.loss_mask.assign(response, 1);
  if (!segment.is_trained || !sample.loss_mask.empty()) {
    sample.loss_mask.resize(grown, segment.is_trained ? 1 : 0);
  }
  if (segment.is_trained) {
    if (segment.log_probs) {
      sample.log_probs.insert(sample.log_probs.end(), segment.log_probs->begin(),
                              segment.log_probs->end());
    }
  } else {
    sample.log_probs.resize(grown, 0.0F);
  }
  sample.tokens.insert(sample.tokens.end(), segment.tokens.begin(), segment.tokens.end());
}

void append_kept_ids(Sample& sample, const Segment& segment) {
  if (segment.kept_ids) {
    const auto base = static_cast<int64_t>(sample.top_p_ids.size());
    if (sample.top_p_offsets.empty()) sample.top_p_offsets.push_back(0);
    for (std::size_t t = 1; t < segment.kept_ids->offsets.size(); ++t) {
      sample.top_p_offsets.push_back(base + segment.kept_ids->offsets[t]);
    }
    sample.top_p_ids.insert(sample.top_p_ids.end(), segment.kept_ids->ids.begin(),
                            segment.kept_ids->ids.end());
  } else if (!sample.top_p_offsets.empty()) {
    sample.top_p_offsets.resize(sample.top_p_offsets.size() + segment.tokens.size(),
                                sample.top_p_offsets.back());
  }
}

/// After the tokens: the runs add up to the response again, unless nothing is known of any token.
void append_versions(Sample& sample, const Segment& segment) {
  if (sample.versions.empty() && segment.versions.empty()) return;
  const auto added = static_cast<int64_t>(segment.tokens.size());
  const int64_t before = sample.response_length() - added;
  append_run(sample.versions, {kNoVersion, before - num_tokens(sample.versions)});
  for (const VersionRun& run : segment.versions) append_run(sample.versions, run);
  append_run(sample.versions, {kNoVersion, added - num_tokens(segment.versions)});
}

}  // namespace

Expected<void> append_segment(Sample& sample, Segment segment, const RoutingShape& routing) {
  if (const std::string problem = problem_with(sample, segment, routing); !problem.empty()) {
    return failure(fmt::format("sample {}: {}", sample.ordinal, problem));
  }
  append_masked(sample, segment);
  append_kept_ids(sample, segment);
  if (segment.routed_experts) {
    const int64_t kept = segment.routed_experts->first_row * routing.num_layers * routing.topk;
    sample.routed_experts.resize(static_cast<std::size_t>(kept));
    sample.routed_experts.insert(sample.routed_experts.end(), segment.routed_experts->ids.begin(),
                                 segment.routed_experts->ids.end());
  }
  append_versions(sample, segment);
  sample.response += segment.text;
  sample.engine_prompt_tokens += segment.prompt_tokens;
  sample.cached_tokens += segment.cached_tokens;
  if (segment.status) sample.status = *segment.status;
  return {};
}

}  // namespace slime::golden
