#include "train/flops.h"

#include <algorithm>

namespace slime::train {
namespace {

double layer_flops(const FlopsModel& model, double s, double ffn) {
  const double h = static_cast<double>(model.hidden_size);
  const double heads = static_cast<double>(model.num_heads);
  double q = h * heads * static_cast<double>(model.head_dim);
  double kv = 2 * h * static_cast<double>(model.num_kv_heads * model.head_dim);
  double attended =
      2.0 * static_cast<double>(model.head_dim);  // width of the score plus of the value product
  if (model.latent) {
    const auto& latent = *model.latent;
    const double q_rank = static_cast<double>(latent.q_rank),
                 kv_rank = static_cast<double>(latent.kv_rank);
    const double rotary = static_cast<double>(latent.rotary_dim),
                 value = static_cast<double>(latent.value_dim);
    const double qk = static_cast<double>(latent.qk_dim) + rotary;
    q = q_rank > 0 ? q_rank * (h + heads * qk) : h * heads * qk;
    if (kv_rank > 0)
      kv = kv_rank * (h + heads * (static_cast<double>(latent.qk_dim) + value)) + h * rotary;
    attended = qk + value;
  }
  return 2 * s * (q + kv) + heads * s * s * attended + 2 * s * h * h + 6 * s * h * ffn;
}

}  // namespace

FlopsModel flops_model_of(const model::ModelConfig& config) {
  FlopsModel model;
  model.hidden_size = config.hidden_size;
  model.num_heads = config.num_heads;
  model.num_kv_heads = config.num_kv_heads;
  model.head_dim = config.head_dim;
  model.vocab_size = config.vocab_size;
  model.intermediate_size = config.intermediate_size;
  model.num_dense_layers = config.num_layers;
  return model;
}

double forward_flops(const FlopsModel& model, std::span<const int64_t> lengths) {
  double total = 0;
  for (const int64_t length : lengths) {
    const double s = static_cast<double>(length);
    total += static_cast<double>(model.num_dense_layers) *
             layer_flops(model, s, static_cast<double>(model.intermediate_size));
    total += static_cast<double>(model.num_moe_layers) *
             layer_flops(model, s, static_cast<double>(model.moe_intermediate_size));
    total += 2 * s * static_cast<double>(model.hidden_size) * static_cast<double>(model.vocab_size);
  }
  return total;
}

}  // namespace slime::train
