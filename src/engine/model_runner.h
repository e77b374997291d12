#pragma once

/// One step on the device: the chunks' tokens through the network in one packed batch, then the
/// next tokens of those that are complete, and the log-probs of prompt tokens for those who asked.
///
/// Dimensions: T tokens of the step, H hidden, V vocabulary.

#include <span>
#include <vector>

#include "engine/paged_attention.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/network.h"

namespace slime::engine {

class ModelRunner {
 public:
  /// References must outlive it. The weights may change between steps, not during one.
  ModelRunner(model::Network& network, PagedKvCache& cache, std::vector<TokenId> eos_ids);

  /// A result per chunk, in order; `request` is null in those that draw no token. Scores of prompt
  /// tokens are appended to the requests' pending updates.
  std::vector<SampleJob> run(std::span<const Chunk> chunks);

 private:
  Tensor forward(std::span<const Chunk> chunks);
  void score_prompts(std::span<const Chunk> chunks, const Tensor& hidden_TH);

  model::Network& network_;
  PagedAttention attention_;
  const std::vector<TokenId> eos_ids_;
  Tensor logits_RV_;  // of the last step; the results' spans point into it
};

}  // namespace slime::engine
