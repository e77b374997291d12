// What a GPU step draws, and how it comes to the host.

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/drawn_rows.h"
#include "engine/gpu_runner.h"
#include "kernels/cpu/thread_pool.h"
#include "model/adapters.h"

namespace slime::engine {
namespace {

/// Of a tensor that has as many numbers of each of `rows` drawing rows.
Tensor drawn_part(const Tensor& x, int64_t rows, int64_t begin, int64_t count) {
  if (!x.defined()) return x;
  const int64_t each = x.size(0) / rows;
  return x.narrow(0, begin * each, count * each);
}

}  // namespace

void GpuRunner::draw(const GpuStepInputs& in, const Tensor& hidden_RH, int64_t place) {
  if (in.sampled_adapters.defined()) network_->adapters()->take(in.sampled_adapters);
  const int64_t rows = hidden_RH.size(0);
  const int64_t block = in.arithmetic == StepArithmetic::kTraining ? kDrawnBlockRows : rows;
  for (int64_t begin = 0; begin < rows; begin += block)
    draw_block(in, hidden_RH.narrow(0, begin, std::min(block, rows - begin)), begin, place + begin);
}

void GpuRunner::draw_block(const GpuStepInputs& in, const Tensor& hidden_RH, int64_t begin,
                           int64_t place) {
  const Tensor logits_RV = network_->logits(hidden_RH);
  const int64_t rows = logits_RV.size(0), all = in.sampling.uniform_R.size(0);
  const auto own = [&](const Tensor& x) { return drawn_part(x, all, begin, rows); };
  const kernels::SampleRows& of = in.sampling;
  const auto room = [&](int64_t which) { return results_.on_device[which].narrow(0, place, rows); };
  gpu_.sample(logits_RV,
              {own(of.uniform_R), own(of.temperature_R), own(of.top_p_R), own(of.min_p_R),
               own(of.top_k_R), own(of.extras_R)},
              {room(0), room(1).view(at::kFloat), room(2)});
}

std::vector<std::optional<kernels::SampledToken>> GpuRunner::collect() {
  check(!launched_.empty(), "a step is launched before it is collected");
  Launched launched = std::move(launched_.front());
  launched_.pop_front();
  results_.ready[launched.turn]
      .synchronize();  // sync: the step's tokens, while the next one computes
  if (experts_) experts_->collect();
  scored_ = std::move(launched.scored);
  scored_turn_ = launched.turn;
  const Tensor& results = results_.on_host[launched.turn];
  const int32_t* tokens = results.const_data_ptr<int32_t>();
  const auto* log_probs = reinterpret_cast<const float*>(tokens + results.size(1));
  std::vector<std::optional<kernels::SampledToken>> out(launched.row_of_chunk.size());
  const auto take = [&](int64_t row, kernels::SampledToken& token) {
    token.id = tokens[row];
    token.log_prob = log_probs[row];
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int64_t row = launched.row_of_chunk[i];
    if (row < 0) continue;
    take(row, out[i].emplace());
  }
  behind_drafts_.assign(launched.drafts_of_chunk.size(), {});
  for (std::size_t i = 0; i < behind_drafts_.size(); ++i) {
    behind_drafts_[i].resize(static_cast<std::size_t>(launched.drafts_of_chunk[i]));
    int64_t row = launched.row_of_chunk[i];
    for (kernels::SampledToken& token : behind_drafts_[i]) take(++row, token);
  }
  const int32_t* num_kept = tokens + 2 * results.size(1);
  const auto kept_of = [&](const RowReport& report) {
    return num_kept[launched.row_of_chunk[report.chunk] + report.draw];
  };
  const auto read = [&](const RowReport& report) {
    kernels::SampledToken& token =
        report.draw == 0 ? *out[report.chunk] : behind_drafts_[report.chunk][report.draw - 1];
    extras_.read(report, launched.turn, kept_of(report), token);
  };
  std::vector<const RowReport*> handed_over;  // each is work for a core
  for (const RowReport& report : launched.reports) {
    if (report.word >= 0 && kept_of(report) == kernels::kHandedOver) {
      handed_over.push_back(&report);
    } else {
      read(report);
    }
  }
  kernels::cpu::parallel_chunks(static_cast<int64_t>(handed_over.size()),
                                [&](int64_t i) { read(*handed_over[i]); });
  return out;
}

std::vector<kernels::SampledToken> GpuRunner::take_behind_drafts(std::size_t chunk) {
  check(chunk < behind_drafts_.size(), "a chunk with drafts is of the collected step");
  return std::move(behind_drafts_[chunk]);
}

std::vector<kernels::SampledToken> GpuRunner::take_scores(std::size_t chunk) {
  const auto scored = std::ranges::find(scored_, chunk, &ScoredChunk::chunk);
  check(scored != scored_.end(), "a chunk that scores is of the collected step");
  return prompt_scores_.read(std::move(*scored), scored_turn_);
}

}  // namespace slime::engine
