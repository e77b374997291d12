#include "engine/gpu_prompt_scores.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"
#include "engine/adapter_tiles.h"
#include "engine/gpu_row_extras.h"
#include "engine/prompt_scores.h"
#include "engine/served_adapters.h"
#include "model/adapters.h"

namespace slime::engine {
namespace {

/// Rows whose logits exist at once: the product reaches 685 TFLOP/s with 256 rows at 4B (kernel-product-head
/// in docs/benchmarks/h200.md), and 150,000 logits of each are 155 MB.
constexpr int64_t kBlockRows = 256;
/// Of long lists, whose logits come to the host.
constexpr int64_t kLongListRows = 64;

constexpr auto kExtrasBytes = static_cast<int64_t>(sizeof(kernels::RowExtras));

/// The device sorts them.
bool has_reports(int64_t num_top) { return num_top > 0 && num_top <= kernels::kMostReported; }

/// An upper bound of what StepBlock holds: per position a row, a target and its extras; tiles of each block.
int64_t block_bytes(int64_t most_rows, int64_t num_adapters) {
  return most_rows * (16 + kExtrasBytes) + 256 +
         divide_up(most_rows, kBlockRows) * adapter_tile_bytes(kBlockRows, num_adapters);
}

}  // namespace

GpuPromptScores::GpuPromptScores(const kernels::Gpu& gpu, model::Network& network,
                                 int64_t most_rows)
    : gpu_(gpu),
      vocab_size_(network.config().vocab_size),
      most_rows_(most_rows),
      num_adapters_(adapters_of_rows(network)),
      device_(network.weights().flat().device()) {}

std::vector<ScoredChunk> GpuPromptScores::plan(std::span<const Chunk> chunks, int turn) {
  std::vector<ScoredChunk> planned;
  std::vector<int64_t> rows, targets, slots;
  int64_t first_row = 0, num_words = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const ScoredPositions positions = scored_positions(chunk);
    if (positions.count() > 0) {
      const auto first = chunk.request->tokens.begin() + positions.begin;
      ScoredChunk& scored = planned.emplace_back();
      scored.chunk = i;
      scored.first = static_cast<int64_t>(rows.size());
      scored.targets.assign(first, first + positions.count());
      scored.num_told = std::min(chunk.request->client.top_logprobs_num, vocab_size_);
      scored.asked_ids = chunk.request->client.token_ids_logprob;
      scored.num_top = scored.asked_ids.empty() ? scored.num_told : vocab_size_;
      if (has_reports(scored.num_top)) {
        scored.word = num_words;
        num_words += 2 * scored.num_top * positions.count();
      }
      for (int64_t row = 0; row < positions.count(); ++row)
        rows.push_back(first_row + first_scoring_row(chunk, positions) + row);
      targets.insert(targets.end(), scored.targets.begin(), scored.targets.end());
      slots.insert(slots.end(), scored.targets.size(), slot_of(chunk.request->adapter));
    }
    first_row += chunk.num_tokens;
  }
  if (planned.empty()) return planned;
  const auto count = static_cast<int64_t>(rows.size());
  if (!block_) block_.emplace(block_bytes(most_rows_, num_adapters_), device_);
  block_->begin();
  block_->add(std::span<const int64_t>(rows));
  row_P_ = block_->last_on_device(at::kLong, count);
  block_->add(std::span<const int64_t>(targets));
  target_P_ = block_->last_on_device(at::kLong, count);
  adapters_.clear();
  for (int64_t begin = 0; num_adapters_ > 0 && begin < count; begin += kBlockRows) {
    const auto of_block =
        std::span(slots).subspan(static_cast<std::size_t>(begin),
                                 static_cast<std::size_t>(std::min(kBlockRows, count - begin)));
    adapters_.push_back(add_adapter_tiles(*block_, of_block, num_adapters_));
  }
  extras_P_.reset();
  grow_locked(log_probs_[turn], count, at::kFloat);
  if (num_words > 0) {
    grow_locked(reports_[turn], num_words, at::kInt);
    const auto extras = block_->add<kernels::RowExtras>(count);
    extras_P_ = block_->last_on_device(at::kByte, count * kExtrasBytes).view({count, kExtrasBytes});
    std::ranges::fill(extras, kernels::RowExtras{});
    auto* words = reinterpret_cast<uint32_t*>(reports_[turn].data_ptr<int32_t>());
    for (const ScoredChunk& scored : planned) {
      for (int64_t i = 0; scored.word >= 0 && i < std::ssize(scored.targets); ++i) {
        kernels::RowExtras& row = extras[scored.first + i];
        row.report = words + scored.word + 2 * scored.num_top * i;
        row.num_top = static_cast<int32_t>(scored.num_top);
      }
    }
  }
  block_->send();
  return planned;
}

void GpuPromptScores::compute(const model::Network& network, const Tensor& hidden_TH, int turn,
                              std::vector<ScoredChunk>& scored) {
  const int64_t count = row_P_.size(0);
  const Tensor logprob_P = at::empty({count}, at::TensorOptions(device_).dtype(at::kFloat));
  const Tensor entropy_P = at::empty_like(logprob_P), logsumexp_P = at::empty_like(logprob_P);
  const bool has_long_lists = std::ranges::any_of(
      scored, [](const ScoredChunk& chunk) { return chunk.num_top > 0 && chunk.word < 0; });
  for (int64_t begin = 0; begin < count; begin += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, count - begin);
    const auto of_block = [&](const Tensor& x_P) { return x_P.narrow(0, begin, rows); };
    if (!adapters_.empty())
      network.adapters()->take(adapters_[static_cast<std::size_t>(begin / kBlockRows)]);
    const Tensor logits_BV = network.logits(hidden_TH.index_select(0, of_block(row_P_)));
    Tensor logprob_B = of_block(logprob_P), entropy_B = of_block(entropy_P),
           logsumexp_B = of_block(logsumexp_P);
    gpu_.device().softmax_statistics(logits_BV, of_block(target_P_), 1.0, logprob_B, entropy_B,
                                     logsumexp_B);
    if (extras_P_.defined()) report_best_tokens(gpu_, logits_BV, of_block(extras_P_));
    if (has_long_lists) read_long_lists(logits_BV, begin, scored);
  }
  log_probs_[turn].narrow(0, 0, count).copy_(logprob_P, /*non_blocking=*/true);
}

/// sync: as long as all logits of a row, which come to the host one block after the other.
void GpuPromptScores::read_long_lists(const Tensor& logits_BV, int64_t begin,
                                      std::vector<ScoredChunk>& scored) const {
  for (ScoredChunk& chunk : scored) {
    if (chunk.num_top == 0 || chunk.word >= 0) continue;
    const int64_t from = std::max(chunk.first, begin),
                  to = std::min(chunk.first + static_cast<int64_t>(chunk.targets.size()),
                                begin + logits_BV.size(0));
    for (int64_t row = from; row < to; row += kLongListRows) {
      const Tensor some = logits_BV.narrow(0, row - begin, std::min(kLongListRows, to - row));
      for (auto& best : best_tokens(gpu_, some, chunk.num_top))
        chunk.top.push_back(std::move(best));
    }
  }
}

std::vector<kernels::SampledToken> GpuPromptScores::read(ScoredChunk scored, int turn) const {
  std::vector<kernels::SampledToken> scores(scored.targets.size());
  const float* log_probs = log_probs_[turn].const_data_ptr<float>() + scored.first;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i].id = scored.targets[i];
    scores[i].log_prob = log_probs[i];
    if (scored.num_top == 0) continue;
    if (scored.word < 0) {
      scores[i].top = std::move(scored.top[i]);
    } else {
      const auto* words =
          reinterpret_cast<const uint32_t*>(reports_[turn].const_data_ptr<int32_t>());
      const auto row = static_cast<int64_t>(i);
      scores[i].top = read_top(words + scored.word + 2 * scored.num_top * row, scored.num_top);
    }
    pick_asked(scores[i], scored.asked_ids, scored.num_told);
  }
  return scores;
}

}  // namespace slime::engine
