#include "engine/sampler.h"

#include <limits>

#include "core/random.h"
#include "engine/sampling_params.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::engine {
namespace {

void change_logits(const Request& request, const std::vector<TokenId>& eos_ids,
                   std::span<float> logits_V) {
  const SamplingParams& params = request.client.sampling;
  for (const auto& [id, count] : request.output_counts) {
    float& logit = logits_V[id];
    logit -= static_cast<float>(params.frequency_penalty * static_cast<double>(count) +
                                params.presence_penalty);
    const auto repetition = static_cast<float>(params.repetition_penalty);
    logit = logit > 0 ? logit / repetition : logit * repetition;
  }
  for (const auto& [id, bias] : params.logit_bias) logits_V[id] += static_cast<float>(bias);
  if (request.num_new_tokens() >= params.min_new_tokens) return;
  const auto forbid = [&](TokenId id) {
    if (id >= 0 && id < static_cast<TokenId>(logits_V.size()))
      logits_V[id] = -std::numeric_limits<float>::infinity();
  };
  for (const TokenId id : params.stop_token_ids) forbid(id);
  if (params.ignore_eos) return;
  for (const TokenId id : eos_ids) forbid(id);
}

void sample_one(SampleJob& job, const std::vector<TokenId>& eos_ids) {
  const Request& request = *job.request;
  const SamplingParams& params = request.client.sampling;
  change_logits(request, eos_ids, job.logits_V);
  kernels::SampleOptions options;
  options.temperature = logprob_temperature(params);
  options.greedy = is_greedy(params);
  options.top_k = params.top_k;
  options.top_p = params.top_p;
  options.min_p = params.min_p;
  options.keeps_ids = request.client.return_top_p_token_ids;
  options.num_top = request.client.top_logprobs_num;
  if (!options.greedy) options.uniform = uniform_of(request);
  job.token = kernels::sample_row(job.logits_V, options);
}

}  // namespace

double uniform_of(const Request& request) {
  return uniform(request.seed, request.stream, request.tokens.size());
}

bool needs_host(const GenerateRequest& request, int64_t num_new_tokens) {
  const SamplingParams& params = request.sampling;
  return has_penalties(params) || !params.logit_bias.empty() ||
         num_new_tokens < params.min_new_tokens || request.top_logprobs_num > 0 ||
         request.return_top_p_token_ids;
}

bool has_penalties(const SamplingParams& params) {
  return params.frequency_penalty != 0 || params.presence_penalty != 0 ||
         params.repetition_penalty != 1;
}

void sample(std::span<SampleJob> jobs, const std::vector<TokenId>& eos_ids) {
  kernels::cpu::parallel_chunks(static_cast<int64_t>(jobs.size()),
                                [&](int64_t i) { sample_one(jobs[i], eos_ids); });
}

}  // namespace slime::engine
