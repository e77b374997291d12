#include "engine/sampler.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/random.h"
#include "engine/sampling_params.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::engine {
namespace {

/// Request::output_counts with the drafts before `position`, which are the last tokens of the request.
std::unordered_map<TokenId, int64_t> counts_before(const Request& request, int64_t position,
                                                   int64_t num_drafts) {
  std::unordered_map<TokenId, int64_t> counts = request.output_counts;
  const auto first = static_cast<int64_t>(request.tokens.size()) - num_drafts;
  for (int64_t i = first; i < position; ++i) ++counts[request.tokens[i]];
  return counts;
}

void apply_penalties(const SamplingParams& params,
                     const std::unordered_map<TokenId, int64_t>& counts,
                     std::span<float> logits_V) {
  for (const auto& [id, count] : counts) {
    float& logit = logits_V[id];
    logit -= static_cast<float>(params.frequency_penalty * static_cast<double>(count) +
                                params.presence_penalty);
    const auto repetition = static_cast<float>(params.repetition_penalty);
    logit = logit > 0 ? logit / repetition : logit * repetition;
  }
}

void change_logits(const SampleJob& job, const std::vector<TokenId>& eos_ids) {
  const Request& request = *job.request;
  const SamplingParams& params = request.client.sampling;
  const std::span<float> logits_V = job.logits_V;
  if (job.num_drafts > 0 && has_penalties(params)) {
    apply_penalties(params, counts_before(request, job.position, job.num_drafts), logits_V);
  } else {
    apply_penalties(params, request.output_counts, logits_V);
  }
  for (const auto& [id, bias] : params.logit_bias) logits_V[id] += static_cast<float>(bias);
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  const auto vocab_size = static_cast<int64_t>(logits_V.size());
  if (is_too_short(request, job.position)) {
    for (const TokenId id : forbidden_ids(params, eos_ids, vocab_size)) logits_V[id] = kImpossible;
  }
}

void mask_logits(const Request& request, std::span<float> logits_V) {
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  const auto vocab_size = static_cast<int64_t>(logits_V.size());
  constexpr int64_t kBits = 32;
  for (int64_t begin = 0; begin < vocab_size; begin += kBits) {
    const uint32_t word = request.allowed_W[static_cast<std::size_t>(begin / kBits)];
    if (word == ~0U) continue;
    const int64_t end = std::min(begin + kBits, vocab_size);
    if (word == 0) {
      std::fill(logits_V.begin() + begin, logits_V.begin() + end, kImpossible);
      continue;
    }
    for (int64_t id = begin; id < end; ++id)
      if ((word >> (id - begin) & 1U) == 0) logits_V[id] = kImpossible;
  }
}

kernels::SampledToken sample_one(const SampleJob& job) {
  const Request& request = *job.request;
  const std::span<float> logits_V = job.logits_V;
  const kernels::SampleOptions options = sample_options(request, job.position);
  if (request.allowed_W.empty()) return kernels::sample_row(logits_V, options);
  std::vector<float> free_V;
  if (request.client.return_free_logprobs) free_V.assign(logits_V.begin(), logits_V.end());
  mask_logits(request, logits_V);
  kernels::SampledToken token = kernels::sample_row(logits_V, options);
  if (!free_V.empty()) {
    token.free_log_prob =
        kernels::score_row(free_V, token.id, options.temperature, /*num_top=*/0).log_prob;
  }
  return token;
}

}  // namespace

double uniform_of(const Request& request, int64_t position) {
  return uniform(request.seed, request.stream, static_cast<uint64_t>(position));
}

double uniform_of(const Request& request) {
  return uniform_of(request, static_cast<int64_t>(request.tokens.size()));
}

kernels::SampleOptions sample_options(const Request& request) {
  return sample_options(request, static_cast<int64_t>(request.tokens.size()));
}

kernels::SampleOptions sample_options(const Request& request, int64_t position) {
  const SamplingParams& params = request.client.sampling;
  kernels::SampleOptions options;
  options.temperature = logprob_temperature(params);
  options.greedy = is_greedy(params);
  options.top_k = params.top_k;
  options.top_p = params.top_p;
  options.min_p = params.min_p;
  options.keeps_ids = request.client.return_top_p_token_ids;
  options.keeps_log_probs = request.client.return_top_p_log_probs;
  options.num_top = request.client.top_logprobs_num;
  options.asked_ids = request.client.token_ids_logprob;
  if (!options.greedy) options.uniform = uniform_of(request, position);
  return options;
}

std::vector<TokenId> forbidden_ids(const SamplingParams& params,
                                   const std::vector<TokenId>& eos_ids, int64_t vocab_size) {
  std::vector<TokenId> ids = params.stop_token_ids;
  if (!params.ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  std::erase_if(ids, [&](TokenId id) { return id < 0 || id >= vocab_size; });
  return ids;
}

bool forbids_every_token(const SamplingParams& params, const std::vector<TokenId>& eos_ids,
                         int64_t vocab_size) {
  if (params.min_new_tokens == 0 || params.max_new_tokens == 0) return false;
  std::vector<TokenId> ids = forbidden_ids(params, eos_ids, vocab_size);
  if (static_cast<int64_t>(ids.size()) < vocab_size) return false;
  std::ranges::sort(ids);
  return std::unique(ids.begin(), ids.end()) - ids.begin() == vocab_size;
}

bool is_too_short(const Request& request, int64_t position) {
  return request.allowed_W.empty() &&
         position - request.prompt_length < request.client.sampling.min_new_tokens;
}

bool is_too_short(const Request& request) {
  return is_too_short(request, static_cast<int64_t>(request.tokens.size()));
}

bool has_penalties(const SamplingParams& params) {
  return params.frequency_penalty != 0 || params.presence_penalty != 0 ||
         params.repetition_penalty != 1;
}

void sample(std::span<SampleJob> jobs, const std::vector<TokenId>& eos_ids) {
  kernels::cpu::parallel_chunks(static_cast<int64_t>(jobs.size()), [&](int64_t i) {
    SampleJob& job = jobs[i];
    change_logits(job, eos_ids);
    job.token = sample_one(job);
  });
}

}  // namespace slime::engine
