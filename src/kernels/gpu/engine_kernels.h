#pragma once

/// GPU kernels of the rollout engine: paged attention, states of delta nets, sparse attention, sampling.
///
/// All work goes to the current stream of the tensors' device and is asynchronous: no call waits for the GPU
/// unless it says so. Tensors are on the GPU unless a line says "host".
///
/// Dimensions: T rows (tokens) of a step, S sequences they belong to, U units of tiled attention, R sampled
/// rows, V vocabulary, N query heads, K key-value heads, D head size, E = (N + 2 K) D.

#include "core/tensor.h"
#include "kernels/gpu/latent.h"
#include "kernels/gpu/paged_batch.h"
#include "kernels/gpu/sampled_rows.h"
#include "kernels/gpu/sparse.h"

namespace slime::kernels {

class EngineKernels {
 public:
  virtual ~EngineKernels() = default;

  /// An id below zero stands for the token that row -id - 1 of the previous step drew: those are
  /// replaced, in ids_T (int64).
  virtual void resolve_ids_(Tensor ids_T, const Tensor& sampled_R) const = 0;

  /// True when the tiled kernels have this shape with pages in precision `cache`; otherwise
  /// paged_attention takes the plain one.
  virtual bool has_tiled_attention(const RotaryShape& heads, at::ScalarType type,
                                   at::ScalarType cache) const = 0;
  /// True when sequences of one row go into a DecodeLaunch; otherwise they are tiles like others.
  virtual bool has_decode_attention(const RotaryShape& heads, at::ScalarType type) const = 0;
  /// True when long prompts without a window may go into a PackedLaunch.
  virtual bool has_packed_attention(const RotaryShape& heads, at::ScalarType type) const = 0;
  /// True when steps in training arithmetic have an ExactLaunch for layers without a window, and the trainer
  /// tree_attention_in_pages().
  virtual bool has_exact_attention(const RotaryShape& heads, at::ScalarType type) const = 0;
  /// Writes the step's keys and values into their slots, then attends. Returns [T, N D].
  virtual Tensor paged_attention(const PagedCall& call) const = 0;
  /// Advances the states of the step's sequences by their rows. Returns float32 [T, N V].
  virtual Tensor paged_delta(const DeltaCall& call) const = 0;

  /// True when sequences of one row go into a DecodeLaunch of latent attention, whose cache has rows of
  /// so many numbers.
  virtual bool has_latent_units(int64_t row_size, at::ScalarType type) const = 0;
  /// Writes the rows of the step's tokens into their slots, then attends in the absorbed form. Returns
  /// [T, N V].
  virtual Tensor latent_attention(const LatentCall& call) const = 0;

  /// True when index_rows() and choose_tokens() have an indexer of so many heads of a size, and
  /// latent_attention() such heads to look at what it chose; for up to kRecordedRows.back() rows.
  virtual bool has_sparse_decode(const LatentShape& shape, int64_t index_heads, int64_t index_size,
                                 at::ScalarType type) const = 0;
  virtual IndexRows index_rows(const IndexRowsCall& call) const = 0;
  /// Writes the rows' keys into their slots, then chooses: int32 [T, C], the places of the chosen tokens in
  /// their order. Of a row that sees fewer than C what is behind them is anything.
  virtual Tensor choose_tokens(const IndexCall& call) const = 0;

  /// Draws as kernels/cpu/sample.h does: the same uniform number gives the same token where the
  /// logits are the same. These are changed in place where a row wants that (row_extras.h).
  virtual void sample(const Tensor& logits_RV, const SampleRows& rows,
                      const SampledRows& sampled) const = 0;
};

}  // namespace slime::kernels
