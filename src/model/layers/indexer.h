#pragma once

/// The indexer of sparse attention (DeepSeek-V3.2, section 2.1): a few small heads score all earlier
/// tokens, and attention looks at the best of them.
///
///   score of token s for token t = sum over heads j of w[t, j] relu(q[t, j] . k[s] D^-1/2)
///
/// Nothing flows back into it: its weights get no gradient from the layers that follow its choice.
///
/// Dimensions: T tokens, H hidden, Q size of the latent of queries, J heads, D size of one.

#include "model/attention.h"
#include "model/costs.h"
#include "model/layers/layer_site.h"

namespace slime::model {

/// Norm, rotation and scales.
IndexInput index_input(const IndexProjection& in, const Tensor& positions_T);

class Indexer final {
 public:
  /// Registers "self_attn.indexer.*" of the block.
  explicit Indexer(const LayerSite& site);
  Indexer(const Indexer&) = delete;  // the builder points at the parameters

  /// latent_TQ: of the queries, normed. Without gradients.
  IndexInput forward(const Tensor& input_TH, const Tensor& latent_TQ,
                     const Tensor& positions_T) const;
  /// The products alone, for kernels that do the rest; weights of heads as logits of an output layer are made,
  /// which widens no matrix.
  IndexProjection project(const Tensor& input_TH, const Tensor& latent_TQ) const;
  static Costs costs(const ModelConfig& config);
  int64_t size() const { return size_; }  // of a key

 private:
  IndexProjection products(const Tensor& input_TH, const Tensor& latent_TQ,
                           const Tensor& weight_TJ) const;

  int64_t heads_;
  int64_t size_;
  bool rotates_pairs_;
  Tensor cos_PR_, sin_PR_;
  kernels::MatrixParam query_;  // [J D, Q]
  kernels::MatrixParam key_;    // [D, H]
  kernels::Param norm_;         // [D], of keys, and its bias
  kernels::Param norm_bias_;
  kernels::MatrixParam head_weight_;  // [J, H]
};

}  // namespace slime::model
