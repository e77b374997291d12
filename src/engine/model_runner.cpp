#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace slime::engine {
namespace {

constexpr int64_t kScoredRows = 64;  // prompt positions whose logits exist at once

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

ModelRunner::ModelRunner(model::Network& network, PagedKvCache& cache, std::vector<TokenId> eos_ids)
    : network_(network), attention_(cache), eos_ids_(std::move(eos_ids)) {}

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
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    const Request& request = *chunk.request;
    sequences.push_back({.pages = request.pages.data(),
                         .first_row = row,
                         .num_rows = chunk.num_tokens,
                         .num_keys = request.num_computed + chunk.num_tokens});
    batch.segments.push_back({.begin = row, .end = row + chunk.num_tokens});
    for (int64_t i = 0; i < chunk.num_tokens; ++i, ++row) {
      ids[row] = request.tokens[request.num_computed + i];
      positions[row] = request.num_computed + i;
    }
  }
  const auto& config = network_.config();
  attention_.begin_step(
      kernels::make_paged_plan(std::move(sequences), config.num_heads / config.num_kv_heads));
  return network_.forward(batch, attention_);
}

void ModelRunner::score_prompts(std::span<const Chunk> chunks, const Tensor& hidden_TH) {
  int64_t first_row = 0;  // of the chunk
  for (const Chunk& chunk : chunks) {
    Request& request = *chunk.request;
    const int64_t begin_row = first_row;
    first_row += chunk.num_tokens;
    if (!request.wants_input_scores()) continue;
    // The hidden state of position p scores the token at p + 1.
    int64_t position =
        std::max({request.num_scored, request.first_scored_position(), request.num_computed + 1});
    const int64_t end =
        std::min(request.num_computed + chunk.num_tokens + 1, request.prompt_length);
    if (position == 1 && request.num_scored == 0 && request.client.logprob_start_len == 0) {
      request.pending.input_log_probs.emplace_back(std::nullopt);
      if (request.client.top_logprobs_num > 0) request.pending.input_top.emplace_back();
    }
    while (position < end) {
      const int64_t count = std::min(kScoredRows, end - position);
      const Tensor hidden =
          hidden_TH.narrow(0, begin_row + position - 1 - request.num_computed, count);
      const Tensor logits_RV = kernels::logits(hidden, network_.head());
      std::vector<kernels::SampledToken> scores(count);
      kernels::cpu::parallel_chunks(count, [&](int64_t i) {
        scores[i] = kernels::score_row(row_of(logits_RV, i), request.tokens[position + i], 1.0,
                                       request.client.top_logprobs_num);
      });
      for (kernels::SampledToken& score : scores) {
        request.pending.input_log_probs.emplace_back(score.log_prob);
        if (request.client.top_logprobs_num > 0)
          request.pending.input_top.push_back(std::move(score.top));
      }
      position += count;
    }
    request.num_scored = std::max(request.num_scored, end);
  }
}

std::vector<SampleJob> ModelRunner::run(std::span<const Chunk> chunks) {
  const Tensor hidden_TH = forward(chunks);
  score_prompts(chunks, hidden_TH);
  std::vector<int64_t> rows;  // last ones of complete chunks
  std::vector<SampleJob> drawn;
  std::vector<SampleJob> results(chunks.size());
  int64_t row = 0;
  const auto draws = [](const Chunk& chunk) {
    return chunk.completes() && chunk.request->client.sampling.max_new_tokens > 0;
  };
  for (const Chunk& chunk : chunks) {
    row += chunk.num_tokens;
    if (!draws(chunk)) continue;
    rows.push_back(row - 1);
    drawn.emplace_back().request = chunk.request;
  }
  if (rows.empty()) return results;
  logits_RV_ = kernels::logits(take_rows(hidden_TH, rows), network_.head());
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i].logits_V = row_of(logits_RV_, static_cast<int64_t>(i));
  sample(drawn, eos_ids_);
  std::size_t next = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (draws(chunks[i])) results[i] = std::move(drawn[next++]);
  }
  return results;
}

}  // namespace slime::engine
