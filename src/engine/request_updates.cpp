#include "engine/request_updates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/sampler.h"

namespace slime::engine {

namespace {

FinishReason stopped_by(TokenId id) {
  FinishReason reason;
  reason.matched = id;
  return reason;
}

}  // namespace

FinishReason out_of_length() {
  FinishReason reason;
  reason.kind = FinishReason::Kind::kLength;
  return reason;
}

std::optional<FinishReason> add_token(Request& request, int64_t position,
                                      kernels::SampledToken token, WeightVersion version) {
  GenerateUpdate& pending = request.pending;
  if (std::isnan(token.log_prob)) {
    request.tokens.resize(position);
    return aborted(FinishReason::Cause::kEngineFailed,
                   "the network's logits are not numbers; have the weights diverged?");
  }
  request.tokens[position] = token.id;
  pending.output_ids.push_back(token.id);
  if (request.client.return_logprob) pending.output_log_probs.push_back(token.log_prob);
  if (request.client.return_free_logprobs)
    pending.output_free_log_probs.push_back(request.allowed_W.empty() ? token.log_prob
                                                                      : token.free_log_prob);
  if (!request.allowed_W.empty()) ++pending.num_constrained;
  if (request.client.top_logprobs_num > 0) pending.output_top.push_back(std::move(token.top));
  if (!request.client.token_ids_logprob.empty())
    pending.output_asked.push_back(std::move(token.asked));
  if (request.client.return_top_p_token_ids) {
    pending.top_p_counts.push_back(static_cast<int64_t>(token.kept_ids.size()));
    pending.top_p_ids.insert(pending.top_p_ids.end(), token.kept_ids.begin(), token.kept_ids.end());
    pending.top_p_log_probs.insert(pending.top_p_log_probs.end(), token.kept_log_probs.begin(),
                                   token.kept_log_probs.end());
  }
  if (pending.versions.empty() || pending.versions.back().version != version)
    pending.versions.push_back({version, 0});
  ++pending.versions.back().num_tokens;
  if (has_penalties(request.client.sampling)) ++request.output_counts[token.id];
  if (request.constraint) request.constraint->accept(token.id);

  if (auto reason = request.stop->push(token.id)) {
    request.tokens.resize(position + 1);  // without the surplus token of the step in flight
    return reason;
  }
  if (request.constraint && request.constraint->is_over()) return stopped_by(token.id);
  if (position + 1 >= request.max_tokens) return out_of_length();
  return std::nullopt;
}

void add_tentative(Request& request, int64_t position, int64_t round,
                   const kernels::SampledToken& token) {
  Tentative& tentative = request.tentative;
  if (!tentative.is_open() || tentative.round != round ||
      position >= static_cast<int64_t>(request.tokens.size()))
    return;
  if (!tentative.stop) tentative.stop.emplace(*request.stop);
  request.tokens[position] = token.id;
  tentative.ends = std::isnan(token.log_prob) || tentative.stop->push(token.id).has_value();
  if (!tentative.ends) return;
  // Without that of a step in flight either.
  request.tokens.resize(position);
  request.num_computed = std::min(request.num_computed, position - 1);
}

bool is_due(const Request& request) {
  const int64_t interval = request.client.stream_interval;
  return interval > 0 && static_cast<int64_t>(request.pending.output_ids.size()) >= interval;
}

void deliver(Request& request, Clock::TimePoint now) {
  GenerateUpdate update = std::exchange(request.pending, {});
  update.rid = request.client.rid;
  update.prompt_tokens = request.prompt_length;
  update.cached_tokens = request.cached_tokens;
  update.num_retractions = request.num_retractions;
  update.queue_seconds = seconds_between(request.submitted, request.admitted.value_or(now));
  update.total_seconds = seconds_between(request.submitted, now);
  request.on_update(std::move(update));
}

}  // namespace slime::engine
