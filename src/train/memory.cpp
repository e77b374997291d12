#include "train/memory.h"

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/linear_logprob.h"

namespace slime::train {
namespace {

int64_t saved_bytes_per_token(const model::Costs& costs, int64_t element, bool selective) {
  return element * (selective ? costs.saved_selective : costs.saved) + 4 * costs.saved_float32;
}

int64_t activation_bytes(const model::Network& network, int64_t element, model::Recompute recompute,
                         int64_t tokens) {
  const int64_t hidden = network.config().hidden_size * element;
  // Before the first layer and behind the last: embedding, last sums, final norm, rows for the head
  // and their gradient.
  const int64_t embedding_and_head = 6 * hidden;
  const bool is_selective = recompute == model::Recompute::kSelective;
  int64_t all = 0, largest = 0, flowing = 0;
  for (const model::BlockNeeds& block : network.blocks()) {
    const int64_t bytes = saved_bytes_per_token(block.costs, element, is_selective);
    all += bytes;
    largest = std::max(largest, bytes);
    flowing = std::max(flowing, block.costs.gradients * element);
  }
  if (recompute != model::Recompute::kFull) return tokens * (all + embedding_and_head);
  // The inputs of all layers; one layer whole, and the gradients that flow through its widest
  // layer.
  const auto num_blocks = static_cast<int64_t>(network.blocks().size());
  return tokens * (num_blocks * hidden + largest + flowing + embedding_and_head);
}

int64_t all_logits_bytes(const model::ModelConfig& model, int64_t tokens) {
  return model.vocab_size * 4 * tokens;
}

/// A chunk of float32 logits and, in the backward, its gradient in the network's precision beside it;
/// few logits are one chunk.
int64_t logits_bytes(const model::ModelConfig& model, bool is_on_cpu, int64_t element,
                     int64_t tokens) {
  const kernels::LinearLogProbOptions options;
  const int64_t row = all_logits_bytes(model, 1), all = tokens * row;
  const int64_t chunk = is_on_cpu ? options.chunk_bytes : options.gpu_chunk_bytes;
  const int64_t at_once =
      all <= options.kept_bytes ? all : std::min(all, std::max(row, chunk / row * row));
  return at_once * (4 + (element < 4 ? element : 0)) / 4;
}

/// Capped scores on a GPU are plain operations, of 512 queries against all keys at once: scores, slopes,
/// shares and their gradients, float32 (kernels/cpu/reference.cpp).
int64_t plain_attention_bytes(const model::ModelConfig& model, int64_t tokens) {
  constexpr int64_t kRows = 512, kAtOnce = 9;
  return kAtOnce * 4 * model.num_heads * std::min(tokens, kRows) * tokens;
}

/// Allocators round up, and libraries take workspaces.
constexpr int64_t kRoomBesideKeptLogits = int64_t{3} << 30;

}  // namespace

int64_t kept_logits(int64_t available, int64_t all_logits) {
  const int64_t few = kernels::LinearLogProbOptions().kept_bytes;
  if (all_logits <= few) return few;
  return std::clamp<int64_t>(available - kRoomBesideKeptLogits, 0, all_logits);
}

int64_t kept_logits_now(const model::ModelConfig& model, const Tensor& hidden_LH,
                        bool replays_top_p) {
  const int64_t tokens = hidden_LH.size(0), all = all_logits_bytes(model, tokens);
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  int64_t taken = logits_bytes(model, /*is_on_cpu=*/false, hidden_LH.element_size(), tokens);
  if (replays_top_p) taken *= 4;
  return kept_logits(use.free + use.kept - use.tensors - taken, all);
}

TrainMemory predict_memory(model::Network& network, const model::Precision& precision,
                           const TrainConfig& config, int64_t micro_batch_tokens) {
  const int64_t parameters = network.weights().flat().numel();
  const at::ScalarType dtype = precision.weights;
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t wide = dtype == at::kDouble ? 8 : 4;
  // Where weights have the master's precision they are the master.
  const int64_t optimizer = (dtype == at::kFloat || dtype == at::kDouble ? 2 : 3) * wide;
  TrainMemory memory;
  memory.weights = parameters * element;
  memory.gradients = parameters * wide;
  const bool has_master = optimizer == 3 * wide;
  memory.optimizer = config.adam.on_host ? StreamedAdam::device_bytes(parameters, has_master)
                                         : parameters * optimizer / config.batching.dp;
  const int64_t copies = (needs_reference(config) ? 1 : 0) + (config.has_teacher_model ? 1 : 0) +
                         (config.keep_old_actor ? 2 : 0) + (config.critic ? 1 : 0);
  memory.others = parameters * (copies * element +
                                (config.critic && !config.critic->adam.on_host ? optimizer : 0));
  if (config.critic) memory.gradients *= 2;
  const auto of_activations = static_cast<int64_t>(c10::elementSize(precision.activations));
  memory.activations =
      activation_bytes(network, of_activations, config.recompute, micro_batch_tokens);
  if (network.config().score_cap > 0 && !precision.device.is_cpu())
    memory.activations += plain_attention_bytes(network.config(), micro_batch_tokens);
  memory.logits =
      logits_bytes(network.config(), precision.device.is_cpu(), of_activations, micro_batch_tokens);
  memory.all_logits = all_logits_bytes(network.config(), micro_batch_tokens);
  return memory;
}

}  // namespace slime::train
