#include "estimate/stages.h"

#include <algorithm>
#include <cmath>

#include "engine/page_window.h"
#include "model/pipeline_layers.h"

namespace slime::estimate {

int64_t num_micro_batches(const comm::ParallelLayout& layout, const Workload& workload) {
  const double rows_of_a_pipeline = static_cast<double>(workload.rows()) / layout.dp;
  const double at_once = static_cast<double>(workload.micro_batch_tokens) * layout.cp;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(rows_of_a_pipeline / at_once)));
}

TrainerRank rank_of(const ModelShape& shape, const comm::ParallelLayout& layout,
                    const Workload& workload, int stage) {
  TrainerRank rank{.hidden = shape.hidden,
                   .vocab = shape.vocab,
                   .has_head = stage == layout.pp - 1,
                   .attention = shape.attention,
                   .layout = layout,
                   .precision = kPlannedPrecision,
                   .recompute = workload.recompute,
                   .orders_backward = workload.orders_backward,
                   .optimizer_on_host = workload.optimizer_on_host,
                   // Beside adapters the reference is the model without them.
                   .copies = workload.has_reference && !shape.trains_adapters ? 1 : 0,
                   .tokens = workload.micro_batch_tokens};
  const auto num_layers = static_cast<int64_t>(shape.blocks.size());
  const auto add_adapters = [&](const AdapterShape& adapters) {
    rank.adapters += adapters.whole + adapters.sliced / layout.tp;
    rank.expert_adapters += adapters.experts / (layout.ep * layout.etp);
  };
  for (const model::LayerRange& range : model::layers_of_stage(layout, stage, num_layers)) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const BlockShape& block = shape.blocks[static_cast<size_t>(i)];
      rank.dense += block.whole + block.sliced / layout.tp;
      rank.experts += block.experts / (layout.ep * layout.etp);
      add_adapters(block.adapters);
      rank.blocks.push_back(block.costs);
    }
  }
  const bool is_tied = shape.head == 0;
  if (stage == 0 || (rank.has_head && is_tied)) rank.dense += shape.embedding / layout.tp;
  if (rank.has_head) rank.dense += shape.hidden + shape.head / layout.tp;
  for (const DraftShape& draft : shape.drafts) {
    if (!draft.are_trained || !rank.has_head) continue;
    rank.dense += draft.parameters / layout.tp;
    for (const model::BlockNeeds& block : draft.blocks) rank.blocks.push_back(block.costs);
  }
  if (stage == 0) add_adapters(shape.embedding_adapters);
  if (rank.has_head) add_adapters(shape.head_adapters);
  // One forward, one backward: a stage holds as many as there are stages from it to the end.
  rank.micro_batches = std::min<int64_t>(layout.pp - stage, num_micro_batches(layout, workload));
  return rank;
}

std::vector<Stage> stages_of(const ModelShape& shape, const comm::ParallelLayout& layout,
                             const Workload& workload) {
  std::vector<Stage> stages;
  const auto num_layers = static_cast<int64_t>(shape.blocks.size());
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto ranges = model::layers_of_stage(layout, stage, num_layers);
    stages.push_back({ranges.front().begin, ranges.back().end,
                      memory_of(rank_of(shape, layout, workload, stage))});
  }
  return stages;
}

double engine_weight_bytes(const ModelShape& shape) {
  if (shape.coded_bytes > 0) return static_cast<double>(shape.coded_bytes);
  return kElementBytes * static_cast<double>(shape.parameters());
}

namespace {

/// In float32, on one of `tp` devices.
int64_t adapter_bytes(const ModelShape& shape, int64_t tp) {
  int64_t numbers = 0;
  const auto add = [&](const AdapterShape& adapters) {
    numbers += adapters.whole + (adapters.sliced + adapters.experts) / tp;
  };
  for (const BlockShape& block : shape.blocks) add(block.adapters);
  add(shape.embedding_adapters);
  add(shape.head_adapters);
  return 4 * numbers;
}

}  // namespace

EngineMemory engine_weights(const ModelShape& shape, int64_t tp, EnginePlace place) {
  constexpr auto kBytes = static_cast<int64_t>(kElementBytes);
  EngineMemory memory{.weights = static_cast<int64_t>(engine_weight_bytes(shape)) / tp};
  const bool has_own = place != EnginePlace::kInTurns || shape.coded_bytes > 0;
  const bool is_staged = has_own && !shape.trains_adapters;
  if (is_staged) memory.staged = memory.weights;
  if (has_own && shape.trains_adapters) {
    const int64_t adapters = adapter_bytes(shape, tp);
    memory.weights += adapters;
    // An engine apart has a second one, which updates are written to.
    if (place == EnginePlace::kApart) memory.staged = adapters;
  }
  for (const DraftShape& draft : shape.drafts) {
    const int64_t own = kBytes * draft.parameters / (draft.are_layers ? tp : 1);
    memory.weights += own;
    memory.drafts += own;
    if (is_staged && place != EnginePlace::kInTurns && draft.are_layers) memory.staged += own;
  }
  return memory;
}

EngineMemory engine_memory(const ModelShape& shape, int64_t tp, int64_t bytes, EnginePlace place,
                           int64_t request_tokens) {
  EngineMemory memory = engine_weights(shape, tp, place);
  memory.keys_and_values = std::max<int64_t>(0, bytes - memory.weights - memory.staged);
  double numbers = 0;  // on a device, of a token of such a request in the mean
  const int64_t length = std::max<int64_t>(request_tokens, 1);
  for (const BlockShape& block : shape.blocks) {
    const engine::PageWindow window{.tokens = block.window};
    // Ranks divide key heads; more ranks than heads have the same ones.
    const int64_t divided = std::clamp<int64_t>(block.cache.heads, 1, tp);
    numbers += static_cast<double>(block.cache.numbers_per_token() * window.most_held(length, 0)) /
               static_cast<double>(divided * length);
  }
  for (const DraftShape& draft : shape.drafts) {
    for (const model::BlockNeeds& block : draft.blocks) {
      const int64_t divided = draft.are_layers ? std::clamp<int64_t>(block.cache.heads, 1, tp) : 1;
      numbers +=
          static_cast<double>(block.cache.numbers_per_token()) / static_cast<double>(divided);
    }
  }
  if (numbers > 0)
    memory.tokens = static_cast<double>(memory.keys_and_values) / (kElementBytes * numbers);
  return memory;
}

}  // namespace slime::estimate
