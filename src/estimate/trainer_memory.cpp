#include "estimate/trainer_memory.h"

#include <algorithm>

#include "kernels/gpu/ordered_levels.h"
#include "train/kept_logits.h"

namespace slime::estimate {
namespace {

int64_t element_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

/// Tensor-parallel ranks divide what layers keep; without sequence parallelism the streams between
/// layers are whole on each.
int64_t activation_bytes(const TrainerRank& rank) {
  const int64_t element = element_of(rank.precision.activations), tp = rank.layout.tp;
  const int64_t hidden = rank.hidden * element / (rank.layout.sequence_parallel ? tp : 1);
  // Before the first layer and after the last: embedding, last sums, final norm, rows for the head
  // and their gradient.
  const int64_t ends = 6 * hidden;
  const bool is_selective = rank.recompute == model::Recompute::kSelective;
  int64_t all = 0, largest = 0, flowing = 0;
  for (const model::Costs& block : rank.blocks) {
    const int64_t saved = is_selective ? block.saved_selective : block.saved;
    const int64_t bytes = (element * saved + 4 * block.saved_float32) / tp;
    all += bytes;
    largest = std::max(largest, bytes);
    flowing = std::max(flowing, block.gradients * element / tp);
  }
  if (rank.recompute != model::Recompute::kFull)
    return rank.tokens * rank.micro_batches * (all + ends);
  // The inputs of all layers; one layer whole, and the gradients that flow through its widest
  // layer.
  const auto num_blocks = static_cast<int64_t>(rank.blocks.size());
  return rank.tokens * (rank.micro_batches * num_blocks * hidden + largest + flowing + ends);
}

/// Capped scores on a GPU are plain operations, of 512 queries against all keys at once: scores, slopes,
/// shares and their gradients, float32 (kernels/cpu/reference.cpp).
int64_t plain_attention_bytes(const TrainerRank& rank) {
  constexpr int64_t kRows = 512, kAtOnce = 9;
  return kAtOnce * 4 * (rank.attention.heads.num_heads / rank.layout.tp) *
         std::min(rank.tokens, kRows) * rank.tokens;
}

/// Of the layer whose window takes most. Kernels that add in one order have 16 bits and heads up to 256.
int64_t ordered_bytes(const TrainerRank& rank) {
  constexpr int64_t kMostHeadDim = 256;
  kernels::RotaryShape heads = rank.attention.heads;
  if (!rank.orders_backward || element_of(rank.precision.activations) != 2 ||
      heads.head_dim % 8 != 0 || heads.head_dim > kMostHeadDim)
    return 0;
  heads.num_heads /= rank.layout.tp;
  heads.num_kv_heads = std::max<int64_t>(1, heads.num_kv_heads / rank.layout.tp);
  int64_t most = 0;
  for (const int64_t window : rank.attention.windows)
    most = std::max(most, kernels::ordered_backward_bytes(heads, rank.tokens, window));
  return most;
}

int64_t attention_bytes(const TrainerRank& rank) {
  if (rank.attention.heads.num_heads == 0) return 0;
  return rank.attention.has_caps ? plain_attention_bytes(rank) : ordered_bytes(rank);
}

}  // namespace

TrainerMemory memory_of(const TrainerRank& rank) {
  const at::ScalarType dtype = rank.precision.weights;
  const int64_t element = element_of(dtype), wide = dtype == at::kDouble ? 8 : 4;
  // Where weights have the master's precision they are the master.
  const bool has_master = element < wide;
  const int64_t state = (has_master ? 3 : 2) * wide;
  const int64_t on_device = state * rank.dense / (rank.layout.dp * rank.layout.cp) +
                            state * rank.experts / rank.layout.edp();
  TrainerMemory memory;
  memory.weights = rank.parameters() * element;
  memory.gradients = rank.parameters() * wide * (rank.has_critic ? 2 : 1);
  memory.optimizer = rank.optimizer_on_host
                         ? train::StreamedAdam::device_bytes(rank.parameters(), has_master)
                         : on_device;
  const int64_t copy = memory.weights;
  if (rank.adapters + rank.expert_adapters > 0) {  // in float32, their own masters
    const int64_t bytes = wide * (rank.adapters + rank.expert_adapters);
    memory.weights += bytes;
    memory.gradients = bytes;
    memory.optimizer = 2 * wide * rank.adapters / (rank.layout.dp * rank.layout.cp) +
                       2 * wide * rank.expert_adapters / rank.layout.edp();
  }
  memory.others = rank.copies * copy +
                  rank.adapter_copies * wide * (rank.adapters + rank.expert_adapters) +
                  (rank.has_critic && !rank.critic_optimizer_on_host ? on_device : 0);
  memory.activations = activation_bytes(rank);
  const bool is_on_cpu = rank.precision.device.is_cpu();
  if (!is_on_cpu) memory.activations += attention_bytes(rank);
  if (rank.has_head) {
    const int64_t vocab = rank.vocab / rank.layout.tp;
    memory.logits = train::chunk_logits_bytes(vocab, is_on_cpu,
                                              element_of(rank.precision.activations), rank.tokens);
    memory.all_logits = train::all_logits_bytes(vocab, rank.tokens);
  }
  return memory;
}

TrainerRank rank_of(model::Network& network, const model::Precision& precision,
                    const train::TrainConfig& config, const comm::ParallelLayout& layout,
                    int64_t micro_batch_tokens) {
  const model::ModelConfig& model = network.config();
  const model::Weights& weights = network.weights();
  TrainerRank rank{.dense = weights.experts_begin(),
                   .experts = weights.num_elements() - weights.experts_begin(),
                   .hidden = model.hidden_size,
                   .vocab = model.vocab_size,
                   .has_head = layout.pp == 1,
                   .attention = attention_of(model),
                   .layout = layout,
                   .precision = precision,
                   .recompute = config.recompute,
                   .orders_backward = config.orders_backward,
                   .optimizer_on_host = config.adam.on_host,
                   .tokens = micro_batch_tokens,
                   .micro_batches = layout.pp};
  for (const model::BlockNeeds& block : network.blocks()) rank.blocks.push_back(block.costs);
  const bool has_adapters = network.adapters() != nullptr;
  if (has_adapters) {
    rank.adapters = network.trained().experts_begin();
    rank.expert_adapters = network.trained().num_elements() - rank.adapters;
  }
  rank.copies = (needs_reference(config) && !has_adapters ? 1 : 0) +
                (config.has_teacher_model ? 1 : 0) + (config.critic ? 1 : 0);
  (has_adapters ? rank.adapter_copies : rank.copies) += config.keep_old_actor ? 2 : 0;
  rank.has_critic = config.critic.has_value();
  rank.critic_optimizer_on_host = config.critic && config.critic->adam.on_host;
  return rank;
}

}  // namespace slime::estimate
