#include <algorithm>

#include "core/error.h"
#include "rollout/rollout.h"

namespace slime::rollout {

int64_t remaining_tokens(const Sample& sample, const ResponseRules& rules) {
  int64_t remaining = rules.sampling.max_new_tokens - sample.response_length();
  check(remaining >= 0, "a response is not longer than its limit");
  if (rules.max_context_length) {
    remaining =
        std::min(remaining, *rules.max_context_length - static_cast<int64_t>(sample.tokens.size()));
  }
  return std::max<int64_t>(remaining, 0);
}

void append_generated(Sample& sample, const engine::GenerateUpdate& generated) {
  check(generated.output_ids.size() == generated.output_log_probs.size(),
        "the engine gives one log-prob per token");
  check(generated.finish.has_value(), "a finished request has a reason");
  sample.tokens.insert(sample.tokens.end(), generated.output_ids.begin(),
                       generated.output_ids.end());
  sample.log_probs.insert(sample.log_probs.end(), generated.output_log_probs.begin(),
                          generated.output_log_probs.end());
  if (!sample.loss_mask.empty())
    sample.loss_mask.resize(sample.loss_mask.size() + generated.output_ids.size(), 1);
  for (const VersionRun& run : generated.versions) {
    if (!sample.versions.empty() && sample.versions.back().version == run.version) {
      sample.versions.back().num_tokens += run.num_tokens;
    } else {
      sample.versions.push_back(run);
    }
  }
  sample.cached_tokens += generated.cached_tokens;
  sample.generation_seconds += generated.total_seconds;
  switch (generated.finish->kind) {
    case engine::FinishReason::Kind::kStop:
      sample.status = Status::kCompleted;
      break;
    case engine::FinishReason::Kind::kLength:
      sample.status = Status::kTruncated;
      break;
    case engine::FinishReason::Kind::kAbort:
      // 400 is our own bad request; every other abort can be continued.
      sample.status = generated.finish->status_code == 400 ? Status::kFailed : Status::kAborted;
      sample.failure = generated.finish->status_code == 400 ? generated.finish->message : "";
      break;
  }
}

}  // namespace slime::rollout
