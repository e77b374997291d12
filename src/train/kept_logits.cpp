#include "train/kept_logits.h"

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/linear_logprob.h"

namespace slime::train {
namespace {

/// Allocators round up, and libraries take workspaces.
constexpr int64_t kRoomBesideKeptLogits = int64_t{3} << 30;

}  // namespace

int64_t all_logits_bytes(int64_t vocab, int64_t tokens) { return vocab * 4 * tokens; }

int64_t chunk_logits_bytes(int64_t vocab, bool is_on_cpu, int64_t element, int64_t tokens) {
  const kernels::LinearLogProbOptions options;
  const int64_t row = all_logits_bytes(vocab, 1), all = tokens * row;
  const int64_t chunk = is_on_cpu ? options.chunk_bytes : options.gpu_chunk_bytes;
  const int64_t at_once =
      all <= options.kept_bytes ? all : std::min(all, std::max(row, chunk / row * row));
  return at_once * (4 + (element < 4 ? element : 0)) / 4;
}

int64_t kept_logits(int64_t available, int64_t all_logits) {
  const int64_t few = kernels::LinearLogProbOptions().kept_bytes;
  if (all_logits <= few) return few;
  return std::clamp<int64_t>(available - kRoomBesideKeptLogits, 0, all_logits);
}

int64_t kept_logits_now(const model::ModelConfig& model, const Tensor& hidden_LH,
                        bool replays_top_p) {
  const int64_t tokens = hidden_LH.size(0), all = all_logits_bytes(model.vocab_size, tokens);
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  int64_t taken =
      chunk_logits_bytes(model.vocab_size, /*is_on_cpu=*/false, hidden_LH.element_size(), tokens);
  if (replays_top_p) taken *= 4;
  return kept_logits(use.free + use.kept - use.tensors - taken, all);
}

}  // namespace slime::train
