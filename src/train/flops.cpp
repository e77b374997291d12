#include "train/flops.h"

#include "model/network.h"

namespace slime::train {

FlopsModel flops_model_of(const model::Network& network) {
  const model::ModelConfig& config = network.config();
  int64_t per_token = 0, per_pair = 0;
  for (const model::BlockNeeds& block : network.blocks()) {
    per_token += block.costs.flops_per_token;
    per_pair += block.costs.flops_per_pair;
  }
  return {head_flops(config.hidden_size, config.vocab_size) + static_cast<double>(per_token),
          static_cast<double>(per_pair)};
}

double forward_flops(const FlopsModel& model, std::span<const int64_t> lengths) {
  double total = 0;
  for (const int64_t length : lengths) {
    const double s = static_cast<double>(length);
    total += s * model.per_token + s * s / 2 * model.per_pair;
  }
  return total;
}

}  // namespace slime::train
