#include "bench/weight_counts.h"

#include <algorithm>
#include <cmath>

namespace slime::bench {

double WeightCounts::read(int64_t rows) const {
  if (num_experts == 0) return static_cast<double>(always);
  const double missed =
      1 - static_cast<double>(experts_per_token) / static_cast<double>(num_experts);
  const double visited =
      static_cast<double>(num_experts) * (1 - std::pow(missed, static_cast<double>(rows)));
  return static_cast<double>(always) + visited * static_cast<double>(expert);
}

WeightCounts weight_counts(model::Network& network, int num_ranks) {
  const model::ModelConfig& config = network.config();
  const model::ExpertsConfig& experts = config.experts;
  WeightCounts counts;
  counts.num_experts = experts.count;
  counts.experts_per_token = experts.per_token;
  counts.expert = 3 * config.hidden_size * experts.width / num_ranks *
                  std::count(experts.in_layer.begin(), experts.in_layer.end(), true);
  counts.always = network.weights().num_parameters() - experts.count * counts.expert;
  if (!config.ties_embeddings) counts.always -= config.vocab_size * config.hidden_size / num_ranks;
  return counts;
}

}  // namespace slime::bench
