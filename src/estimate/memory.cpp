#include "estimate/memory.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear_logprob.h"
#include "model/pipeline_layers.h"

namespace slime::estimate {
namespace {

constexpr double kGradientBytes = 4;    // float32
constexpr double kOptimizerBytes = 12;  // master, two moments

struct Parameters {
  double dense = 0;    // of a rank
  double experts = 0;  // of a rank
};

Parameters parameters_of(const ModelShape& shape, const comm::ParallelLayout& layout,
                         const std::vector<model::LayerRange>& ranges, int stage) {
  Parameters sum;
  const double tp = layout.tp;
  for (const model::LayerRange& range : ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const BlockShape& block = shape.blocks[static_cast<size_t>(i)];
      sum.dense += static_cast<double>(block.whole) + static_cast<double>(block.sliced) / tp;
      sum.experts += static_cast<double>(block.experts) / (layout.ep * layout.etp);
    }
  }
  const bool is_tied = shape.head == 0;
  const bool is_last = stage == layout.pp - 1;
  if (stage == 0) sum.dense += static_cast<double>(shape.embedding) / tp;
  if (is_last) {
    sum.dense += static_cast<double>(shape.hidden) + static_cast<double>(shape.head) / tp;
    if (is_tied && stage != 0) sum.dense += static_cast<double>(shape.embedding) / tp;
  }
  return sum;
}

/// As train/memory.cpp counts one device's. Tensor-parallel ranks divide what layers keep; without
/// sequence parallelism the streams between layers are whole on each.
double activation_bytes(const ModelShape& shape, const comm::ParallelLayout& layout,
                        const Workload& workload, const std::vector<model::LayerRange>& ranges,
                        int64_t micro_batches_held) {
  const double tp = layout.tp;
  const double stream_share = layout.sequence_parallel ? 1 / tp : 1;
  const double hidden = static_cast<double>(shape.hidden) * kElementBytes * stream_share;
  const bool is_selective = workload.recompute == model::Recompute::kSelective;
  double all = 0, largest = 0, flowing = 0, num_layers = 0;
  for (const model::LayerRange& range : ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const BlockShape& block = shape.blocks[static_cast<size_t>(i)];
      const double saved =
          (kElementBytes * static_cast<double>(is_selective ? block.saved_selective : block.saved) +
           4 * static_cast<double>(block.saved_float32)) /
          tp;
      all += saved;
      largest = std::max(largest, saved);
      flowing = std::max(flowing, static_cast<double>(block.gradients) * kElementBytes / tp);
      ++num_layers;
    }
  }
  const double ends = 6 * hidden;  // embedding, final norm, rows for the head and their gradient
  const auto tokens = static_cast<double>(workload.micro_batch_tokens);
  const auto held = static_cast<double>(micro_batches_held);
  if (workload.recompute == model::Recompute::kFull)
    return tokens * (held * num_layers * hidden + largest + flowing + ends);
  return tokens * held * (all + ends);
}

double logits_bytes(const ModelShape& shape, const comm::ParallelLayout& layout,
                    const Workload& workload) {
  const kernels::LinearLogProbOptions options;
  const double row = 4.0 * static_cast<double>(shape.vocab) / layout.tp;
  const double all = row * static_cast<double>(workload.micro_batch_tokens);
  const double chunk = std::max(row, static_cast<double>(options.gpu_chunk_bytes));
  const double at_once =
      all <= static_cast<double>(options.kept_bytes) ? all : std::min(all, chunk);
  return at_once * (4 + kElementBytes) / 4;
}

}  // namespace

int64_t num_micro_batches(const comm::ParallelLayout& layout, const Workload& workload) {
  const double rows_of_a_pipeline = static_cast<double>(workload.rows()) / layout.dp;
  const double at_once = static_cast<double>(workload.micro_batch_tokens) * layout.cp;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(rows_of_a_pipeline / at_once)));
}

std::vector<StageMemory> trainer_memory(const ModelShape& shape, const comm::ParallelLayout& layout,
                                        const Workload& workload) {
  std::vector<StageMemory> stages;
  const int64_t num_micro = num_micro_batches(layout, workload);
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto ranges =
        model::layers_of_stage(layout, stage, static_cast<int64_t>(shape.blocks.size()));
    const Parameters own = parameters_of(shape, layout, ranges, stage);
    StageMemory memory{.first_layer = ranges.front().begin, .end_layer = ranges.back().end};
    memory.weights = kElementBytes * (own.dense + own.experts);
    memory.gradients = kGradientBytes * (own.dense + own.experts);
    if (!workload.optimizer_on_host) {
      memory.optimizer =
          kOptimizerBytes * (own.dense / (layout.dp * layout.cp) + own.experts / layout.edp());
    }
    if (workload.has_reference) memory.reference = memory.weights;
    // One forward, one backward: a stage holds as many as there are stages from it to the end.
    const int64_t held = std::min<int64_t>(layout.pp - stage, num_micro);
    memory.activations = activation_bytes(shape, layout, workload, ranges, held);
    if (stage == layout.pp - 1) memory.logits = logits_bytes(shape, layout, workload);
    stages.push_back(memory);
  }
  return stages;
}

EngineMemory engine_memory(const ModelShape& shape, int64_t tp, double bytes, bool is_apart,
                           int64_t request_tokens) {
  EngineMemory memory;
  memory.weights =
      kElementBytes * static_cast<double>(shape.parameters()) / static_cast<double>(tp);
  memory.staged = is_apart ? memory.weights : 0;
  memory.keys_and_values = std::max(0.0, bytes - memory.weights - memory.staged);
  double numbers = 0;  // of a token of such a request, in the mean
  const int64_t length = std::max<int64_t>(request_tokens, 1);
  for (const BlockShape& block : shape.blocks) {
    // Keys go in blocks of 64 tokens (engine/page_window.h).
    const int64_t held = block.window > 0 ? std::min(length, block.window + 2 * 64) : length;
    numbers += static_cast<double>(block.cache_numbers) * static_cast<double>(held) /
               static_cast<double>(length);
  }
  if (numbers > 0) {
    memory.tokens = memory.keys_and_values * static_cast<double>(tp) / (kElementBytes * numbers);
  }
  return memory;
}

}  // namespace slime::estimate
