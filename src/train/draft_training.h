#pragma once

/// Training of a draft layer beside the policy: supervised, on the samples of a micro-batch (multi-token prediction;
/// arXiv 2412.19437, section 2.2; docs/decisions/0164-mtp-layers.md).
///
/// The layer's row i of a sequence has the hidden state of token i and token i + 1, and predicts token i + 2. Those
/// predictions count whose token is trained. Its gradients end in its own weights: hidden states, embedding and output
/// layer are the policy's.
///
///   prompt a b c, response d e     rows: h_a b -> c, h_b c -> d, h_c d -> e     counted: d and e
///
/// A prompt that sequences share is computed for each of them here, because the token behind its last one is of each.
/// Dimensions: U rows of the packed batch, D rows of the layer, P of them counted, H hidden.

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "model/network.h"
#include "train/micro_batch.h"

namespace slime::train {

/// The first token of a sequence that a layer predicts: two others precede it.
inline constexpr int64_t kFirstPredicted = 2;

/// Number of counted predictions of a sequence of `length` tokens; `trained`: of its last ones.
template <typename IsTrained>
int64_t num_predictions(int64_t length, std::span<const IsTrained> trained) {
  const int64_t prompt = length - std::ssize(trained);
  int64_t count = 0;
  for (int64_t position = std::max(prompt, kFirstPredicted); position < length; ++position)
    count += trained[static_cast<std::size_t>(position - prompt)] ? 1 : 0;
  return count;
}
/// Of all sequences of a micro-batch.
int64_t num_predictions(const MicroBatch& micro_batch);

/// Adds the gradient of `scale` times the sum of the negative log-probs of the counted predictions to that of the layer,
/// the first of the network, and returns that sum, in nats; 0 where nothing counts. `hidden_UH`: of the last layer, behind
/// the last norm, of all rows; nothing flows back into it. Text alone, of one rank.
double accumulate_draft_gradients(model::Network& network, const MicroBatch& micro_batch,
                                  const Tensor& hidden_UH, double scale);

}  // namespace slime::train
