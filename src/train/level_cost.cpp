#include "train/level_cost.h"

#include "train/flops.h"

namespace slime::train {

double level_cost_of(model::Network& network) {
  constexpr double kKeysOfLevel = 2900;
  if (network.weights().flat().is_cpu()) return 0;
  const model::ModelConfig& config = network.config();
  const FlopsModel flops = flops_model_of(network);
  // Rows of prompts do not pass the output layer.
  const double per_row =
      flops.per_token - 2.0 * static_cast<double>(config.hidden_size * config.vocab_size);
  return kKeysOfLevel * flops.per_pair / per_row;
}

}  // namespace slime::train
