#include "train/memory.h"

#include <algorithm>

#include "kernels/linear_logprob.h"

namespace slime::train {
namespace {

/// What the backward pass of a layer reads, per token (model/layers/decoder_block.cpp): the two
/// sums and their norms, the projection before and after norm and rotation, attention's output with
/// its statistics, gate and up, and their product.
int64_t saved_bytes_per_token(const model::ModelConfig& model, int64_t element, bool selective) {
  const int64_t heads = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
  // Selective recompute keeps neither the norms nor the product.
  const int64_t hidden = (selective ? 2 : 4) * model.hidden_size;
  const int64_t wide = (selective ? 2 : 3) * model.intermediate_size;
  return element * (hidden + (model.has_qk_norm ? 2 : 1) * heads +
                    model.num_heads * model.head_dim + wide) +
         4 * model.num_heads;
}

int64_t activation_bytes(const model::ModelConfig& model, int64_t element,
                         model::Recompute recompute, int64_t tokens) {
  const int64_t block =
      saved_bytes_per_token(model, element, recompute == model::Recompute::kSelective);
  // Before the first layer and behind the last: embedding, last sums, final norm, rows for the head
  // and their gradient.
  const int64_t ends = 6 * model.hidden_size * element;
  if (recompute != model::Recompute::kFull) return tokens * (model.num_layers * block + ends);
  // The inputs of all layers; one layer whole, and the gradients that flow through its widest part.
  const int64_t flowing = 3 * model.intermediate_size * element;
  return tokens * (model.num_layers * model.hidden_size * element + block + flowing + ends);
}

/// Chunks of float32 logits and, in the backward, their gradient in the network's precision beside
/// them; few logits are kept whole.
int64_t logits_bytes(const model::ModelConfig& model, const model::Precision& precision,
                     int64_t tokens) {
  const kernels::LinearLogProbOptions options;
  const int64_t row = model.vocab_size * 4, all = tokens * row;
  const int64_t chunk = precision.device.is_cpu() ? options.chunk_bytes : options.gpu_chunk_bytes;
  const int64_t at_once =
      all <= options.kept_bytes ? all : std::min(all, std::max(row, chunk / row * row));
  const auto element = static_cast<int64_t>(c10::elementSize(precision.activations));
  return at_once * (4 + (element < 4 ? element : 0)) / 4;
}

}  // namespace

TrainMemory predict_memory(const model::ModelConfig& model, int64_t parameters,
                           const model::Precision& precision, const TrainConfig& config,
                           int64_t micro_batch_tokens) {
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
  memory.activations =
      activation_bytes(model, static_cast<int64_t>(c10::elementSize(precision.activations)),
                       config.recompute, micro_batch_tokens);
  memory.logits = logits_bytes(model, precision, micro_batch_tokens);
  return memory;
}

}  // namespace slime::train
