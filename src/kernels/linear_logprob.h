#pragma once

/// Output layer, log-softmax and entropy in one kernel: the logits of a long batch never exist as a
/// whole.
///
/// Dimensions: R rows to score, H hidden size, V vocabulary.
/// With u = (hidden_RH @ head_VH^T) / temperature in float32 (spec section 4.1), where there is a cap of
/// the capped products:
///   logprob_r = u[r, target_r] - logsumexp_v u[r, v]
///   entropy_r = logsumexp_v u[r, v] - sum_v softmax(u)_v u_v

#include <functional>

#include "core/tensor.h"
#include "kernels/matrix.h"

namespace slime::kernels {

struct LogProbs {
  Tensor logprob_R;  // float32 (float64 for a float64 model), carries gradient in grad mode
  Tensor entropy_R;  // same; carries gradient only if requested
  Tensor
      listed_A;  // of LinearLogProbOptions::listed_tokens, carries gradient; undefined: none are listed
};

/// Replay of nucleus truncation (spec section 4.4): row r kept ids[offsets[r] .. offsets[r + 1])
/// and its target; all other logits count as minus infinity in its log-prob. The entropy is always
/// that of the whole vocabulary.
struct KeptTokens {
  Tensor ids;      // int64, flat
  Tensor offsets;  // int64 [R + 1] on the CPU
};

/// A head that is rows [begin, begin + V) of the vocabulary's, of which other ranks have the rest.
/// Log-probs and entropies are those of the whole vocabulary, the same on all of them; the gradient
/// of hidden_RH is what this head's rows have in it.
struct VocabularySlice {
  int64_t begin = 0;
  /// The sum over the ranks, in place; null: the head is whole.
  std::function<void(const Tensor& x)> sum_;
  std::function<void(const Tensor& x)> max_;
};

struct LinearLogProbOptions {
  double temperature = 1.0;        // > 0
  bool entropy_gradient = false;   // false: entropy is for reporting, no gradient flows (spec 4.2)
  int64_t chunk_bytes = 64 << 20;  // size of one chunk of float32 logits
  /// The same on a GPU, where few rows leave most of it idle and the weight gradient, added to in
  /// float32, is read and written once a chunk.
  int64_t gpu_chunk_bytes = int64_t{5} << 29;
  /// In grad mode logits up to this size wait for the backward, which then skips their product: a
  /// quarter of the work.
  int64_t kept_bytes = int64_t{1} << 30;
  bool keeps_some = false;  // larger ones: those of the first chunks that are of this size together
  KeptTokens kept_tokens = {};  // undefined: no replay
  /// Tokens whose log-probs are wanted besides the target's, in the same distribution: of a row with a
  /// nucleus they are in it. Undefined: none.
  KeptTokens listed_tokens = {};
  VocabularySlice vocabulary = {};
  double cap = 0;  // of the products, before the temperature (kernels/soft_cap.h); 0: none
};

/// target_R: int64 token ids. Zero rows give empty results. In grad mode the backward adds into
/// head.grad and returns the gradient of hidden_RH. Rows may repeat the same hidden row (gather
/// first): the first tokens of the n samples of a group are scored by the one row of their shared
/// prompt.
LogProbs linear_logprob(const Tensor& hidden_RH, const MatrixParam& head_VH, const Tensor& target_R,
                        const LinearLogProbOptions& options);

}  // namespace slime::kernels
