#pragma once

/// From logits to tokens: penalties, bias and minimum length change the logits,
/// kernels/cpu/sample.h draws.
///
/// Order, as in SGLang: frequency and presence penalties, repetition penalty, logit bias; ids that
/// would end the response too early become impossible. Penalties count generated tokens, not the
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

/// True when drawing needs the request's earlier tokens or more of the logits than one token: on
/// any device such a row is drawn by sample().
bool needs_host(const GenerateRequest& request, int64_t num_new_tokens);

/// The draw's one random number, for the next token of this request.
double uniform_of(const Request& request);

/// True when the request needs Request::output_counts.
bool has_penalties(const SamplingParams& params);

}  // namespace slime::engine
