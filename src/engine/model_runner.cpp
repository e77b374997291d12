#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include "core/best_seconds.h"
#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/prompt_scores.h"
#include "engine/sampler.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace slime::engine {
namespace {

Tensor int64_tensor(int64_t size) { return at::empty({size}, at::TensorOptions(at::kLong)); }

/// hidden_TH itself when `rows` are all of its rows.
Tensor take_rows(const Tensor& hidden_TH, const std::vector<int64_t>& rows) {
  if (static_cast<int64_t>(rows.size()) == hidden_TH.size(0)) return hidden_TH;
  Tensor index = int64_tensor(static_cast<int64_t>(rows.size()));
  std::copy(rows.begin(), rows.end(), index.data_ptr<int64_t>());
  return hidden_TH.index_select(0, index);
}

std::span<float> row_of(const Tensor& logits_RV, int64_t row) {
  const auto vocab = static_cast<std::size_t>(logits_RV.size(1));
  return {logits_RV.data_ptr<float>() + row * static_cast<int64_t>(vocab), vocab};
}

}  // namespace

ModelRunner::ModelRunner(model::Network& network, const StepRunnerConfig& config)
    : network_(&network),
      cache_(network.blocks(), config.kv_dtype, config.num_pages),
      states_(network.blocks(), config.num_states),
      attention_(cache_, states_),
      queries_per_head_(cache_of_tokens(network.blocks()).queries_per_head),
      eos_ids_(config.eos_ids) {}

Tensor ModelRunner::forward(std::span<const Chunk> chunks) {
  int64_t num_tokens = 0;
  for (const Chunk& chunk : chunks) num_tokens += chunk.num_tokens;
  model::TokenBatch batch;
  batch.ids_T = int64_tensor(num_tokens);
  batch.positions_T = int64_tensor(num_tokens);
  auto* ids = batch.ids_T.data_ptr<int64_t>();
  auto* positions = batch.positions_T.data_ptr<int64_t>();
  std::vector<kernels::PagedSequence> sequences;
  sequences.reserve(chunks.size());
  std::vector<StateId> states;
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    sequences.push_back({.pages = request.pages.data(),
                         .first_row = row,
                         .num_rows = chunk.num_tokens,
                         .num_keys = request.num_computed + chunk.num_tokens});
    if (request.state >= 0) {
      if (request.num_computed == 0) states_.clear(request.state);
      states.push_back(request.state);
    }
    batch.segments.push_back({.begin = row, .end = row + chunk.num_tokens});
    for (int64_t i = 0; i < chunk.num_tokens; ++i, ++row) {
      ids[row] = request.tokens[request.num_computed + i];
      positions[row] = request.num_computed + i;
    }
  }
  attention_.begin_step(kernels::make_paged_plan(std::move(sequences), queries_per_head_),
                        std::move(states));
  return network_->forward(batch, attention_);
}

std::vector<kernels::SampledToken> ModelRunner::score_rows(const Tensor& hidden_PH,
                                                           std::span<const TokenId> targets,
                                                           int64_t num_top) {
  const Tensor logits_PV = kernels::logits(hidden_PH, network_->head());
  std::vector<kernels::SampledToken> scores(targets.size());
  kernels::cpu::parallel_chunks(static_cast<int64_t>(targets.size()), [&](int64_t i) {
    scores[i] = kernels::score_row(row_of(logits_PV, i), targets[i], 1.0, num_top);
  });
  return scores;
}

void ModelRunner::release_memory() {
  cache_.release_memory();
  states_.release_memory();
}

void ModelRunner::copy_weights(const Tensor& flat_N) {
  Tensor running_N = network_->weights().flat();
  copy_seconds_ = best_seconds(1, [&] { running_N.copy_(flat_N); });
}

bool ModelRunner::launch(std::span<const Chunk> chunks) {
  const Tensor hidden_TH = forward(chunks);
  score_prompts(chunks, hidden_TH,
                [this](const Tensor& hidden_PH, std::span<const TokenId> targets, int64_t num_top) {
                  return score_rows(hidden_PH, targets, num_top);
                });
  drawn_.assign(chunks.size(), std::nullopt);
  std::vector<int64_t> rows;  // last ones of chunks that draw
  std::vector<SampleJob> jobs;
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    row += chunk.num_tokens;
    if (!draws_token(chunk)) continue;
    rows.push_back(row - 1);
    jobs.emplace_back().request = chunk.request;
  }
  if (rows.empty()) return false;
  const Tensor logits_RV = kernels::logits(take_rows(hidden_TH, rows), network_->head());
  for (std::size_t i = 0; i < jobs.size(); ++i)
    jobs[i].logits_V = row_of(logits_RV, static_cast<int64_t>(i));
  sample(jobs, eos_ids_);
  std::size_t next = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (draws_token(chunks[i])) drawn_[i] = std::move(jobs[next++].token);
  }
  return false;
}

std::vector<std::optional<kernels::SampledToken>> ModelRunner::collect() {
  return std::exchange(drawn_, {});
}

}  // namespace slime::engine
