#pragma once

/// Record of the sampler at each token of a response: all ids that could be drawn, or the likeliest ones, with
/// their log-probs; and whether score centering can use it.

#include <cstdint>
#include <span>
#include <string>

#include "core/token_span.h"

namespace slime {

/// Of one response. Lists that are not there are empty.
struct SamplerRecord {
  std::span<const TokenId> tokens;     // of the response
  std::span<const float> log_probs;    // of those
  std::span<const uint8_t> loss_mask;  // empty: all ones
  std::span<const TokenId> ids;        // flat
  std::span<const float> id_log_probs;
};

/// Why it is not the whole distribution that each trained token was drawn from; empty: it is. Ids of response token t
/// are [offsets[t], offsets[t + 1]); a token that is not trained may have none. Log-probs of a token's ids are those of
/// probabilities that add up to 1, and one of the ids is the token, with its own log-prob.
std::string problem_of_support(const SamplerRecord& record, std::span<const int64_t> offsets);

/// Why it is not the `width` likeliest ids of each token: different ids, with log-probs of no more than all.
std::string problem_of_head(const SamplerRecord& record, int64_t width);

}  // namespace slime
