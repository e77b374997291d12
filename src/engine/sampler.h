#pragma once

/// Sampler, from logits to tokens: penalties, bias and minimum length change the logits,
/// kernels/cpu/sample.h draws. On a GPU kernels do both (engine/gpu_row_extras.h).
///
/// Order, as in SGLang: frequency and presence penalties, repetition penalty, logit bias; ids that
/// would end the response too early become impossible, or those that a constraint does not allow. Penalties count generated tokens, not the
/// prompt. Log-probs are of the changed distribution. The draw at sequence position p uses
/// uniform(seed, stream, p) alone.

#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/cpu/sample.h"

namespace slime::engine {

struct SampleJob {
  const Request* request = nullptr;
  std::span<float> logits_V;    // changed in place
  kernels::SampledToken token;  // result; log-prob NaN when the logits are no numbers
};

/// Runs on ATen's threads, one row each. `eos_ids` end a response unless it ignores them.
void sample(std::span<SampleJob> jobs, const std::vector<TokenId>& eos_ids);

/// How the next token of this request is sampled.
kernels::SampleOptions sample_options(const Request& request);

/// Ids that are impossible until the request's minimum length, in [0, vocab_size).
std::vector<TokenId> forbidden_ids(const SamplingParams& params,
                                   const std::vector<TokenId>& eos_ids, int64_t vocab_size);
/// True when they are all there are, until the minimum length is reached.
bool forbids_every_token(const SamplingParams& params, const std::vector<TokenId>& eos_ids,
                         int64_t vocab_size);
/// True when the next token may not be one of them. A constraint says itself where a response may end.
bool is_too_short(const Request& request);

/// The draw's one random number, for the next token of this request.
double uniform_of(const Request& request);

/// True when the request needs Request::output_counts.
bool has_penalties(const SamplingParams& params);

}  // namespace slime::engine
