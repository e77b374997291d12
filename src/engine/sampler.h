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
  int64_t position = 0;         // of the token that is drawn
  int64_t num_drafts = 0;       // at the end of the request's tokens
  std::span<float> logits_V;    // changed in place
  kernels::SampledToken token;  // result; log-prob NaN when the logits are no numbers
};

/// Runs on ATen's threads, one row each. `eos_ids` end a response unless it ignores them.
void sample(std::span<SampleJob> jobs, const std::vector<TokenId>& eos_ids);

/// Options of the draw of the token at `position` of this request.
kernels::SampleOptions sample_options(const Request& request, int64_t position);
/// The next one.
kernels::SampleOptions sample_options(const Request& request);

/// Ids that are impossible until the request's minimum length, in [0, vocab_size).
std::vector<TokenId> forbidden_ids(const SamplingParams& params,
                                   const std::vector<TokenId>& eos_ids, int64_t vocab_size);
/// True when they are all there are, until the minimum length is reached.
bool forbids_every_token(const SamplingParams& params, const std::vector<TokenId>& eos_ids,
                         int64_t vocab_size);
/// True when the token at `position` may not be one of them. A constraint says itself where a response may
/// end.
bool is_too_short(const Request& request, int64_t position);
bool is_too_short(const Request& request);  // the next token

/// The draw's one random number, for the token at `position` of this request, or for the next one.
double uniform_of(const Request& request, int64_t position);
double uniform_of(const Request& request);

/// True when the request needs Request::output_counts.
bool has_penalties(const SamplingParams& params);

}  // namespace slime::engine
