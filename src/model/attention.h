#pragma once

/// Attention interface of a network: trainer and engine implement it with their own masks and their
/// own place for keys and values.
///
/// A network calls Attention once per layer with the fused projection of all tokens. TreeAttention
/// (model/tree_attention.h) is the trainer's: over the segments of the batch, differentiable. The
/// engine's writes keys and values into its paged cache and reads them back. Both apply the layer's
/// q/k norm and rotary embedding themselves, because the fast form fuses them with what follows. A layer
/// with a state asks it likewise, because where states live differs as well.
///
/// Dimensions: T tokens, N query heads, K key-value heads, D head size.

#include <optional>

#include "core/tensor.h"
#include "kernels/block_chain.h"
#include "kernels/gated_delta.h"
#include "kernels/matrix.h"

namespace slime::model {

/// Constant facts of one layer. References live in the network.
struct AttentionLayer {
  int index = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  bool values_are_keys = false;  // the projection has no values; the engine's attention only
  double scale = 0;              // of the logits, usually head_dim^-1/2
  double score_cap = 0;          // of scaled scores (kernels/soft_cap.h); 0: none
  int64_t window = 0;            // a token sees itself and window - 1 earlier ones; 0: all
  kernels::Param q_norm;         // [D], undefined without q/k norm
  kernels::Param k_norm;         // [D]
  double norm_eps = 0;
  kernels::Param sinks;  // [N] scores that take part in the softmax without a value; or undefined
  /// float32 [max positions, rotary size / 2]: half-split rotary, scaled as the config says.
  Tensor cos_PR;
  Tensor sin_PR;
};

/// The same of a layer of latent attention (model/layers/latent_attention.h). Dimensions beside the
/// above: L size of the latent, P numbers of a head that do not rotate, R that do, V of a value.
struct LatentLayer {
  int index = 0;
  int64_t num_heads = 0;
  int64_t rank = 0;        // L
  int64_t plain_dim = 0;   // P
  int64_t rotary_dim = 0;  // R
  int64_t value_dim = 0;   // V
  double scale = 0;
  /// A token looks at the so many best of its indexer's; 0: at all.
  int64_t index_count = 0;
  /// Where the layer has no indexer of its own: the layer before it whose choice it takes.
  int index_source = 0;
  bool lends_choice = false;  // a layer behind it takes this one's
  kernels::MatrixParam
      expand;  // [N (P + V), L]: the latent to each head's plain keys, then its values
  kernels::Param latent_norm;  // [L]
  double norm_eps = 0;         // of it
  Tensor rotary_order_R;       // int64, undefined where halves rotate with each other
  Tensor cos_PR;               // float32 [max positions, R / 2]
  Tensor sin_PR;
};

/// What an indexer makes of a token (model/layers/indexer.h): J heads of D numbers, rotated. float32
/// (float64), without gradients.
struct IndexInput {
  Tensor query_TJD;  // scaled
  Tensor key_TD;
  Tensor weight_TJ;
};

/// The same as products leave it, with the constants of the layer: neither normed, rotated nor scaled.
struct IndexProjection {
  Tensor query_TE;  // [T, J D]
  Tensor key_TD;
  Tensor weight_TJ;                // float32 (float64)
  kernels::Param norm, norm_bias;  // [D], of keys
  double norm_eps = 0;
  Tensor cos_PR, sin_PR;
  bool rotates_pairs = false;
};

/// What a token brings: not yet rotated, halves that rotate with each other.
struct LatentInput {
  Tensor plain_query_TNP;
  Tensor rotary_query_TNR;
  Tensor latent_TL;  // normed
  Tensor rotary_key_TR;
  std::optional<IndexInput> index;  // of a layer with an indexer
};

/// The same as products leave it: the latent without its norm, rotating numbers as files order them. Rows
/// may lie apart.
struct LatentProjection {
  Tensor query_TE;  // [T, N (P + R)]: of a head what does not rotate, then what does
  Tensor latent_TL;
  Tensor rotary_key_TR;
  std::optional<IndexProjection> index;  // of a layer with an indexer
};

/// A layer with a state instead of keys and values (model/layers/gated_delta_net.h).
struct DeltaLayer {
  int index = 0;
  kernels::DeltaShape shape;
  int64_t taps = 0;
  kernels::Param conv;  // [E, 1, taps]
};

class Attention {
 public:
  virtual ~Attention() = default;
  /// qkv_TE: [T, (N + 2 K) * D], query, key and value heads side by side, not yet normed or
  /// rotated. Returns [T, N * D].
  virtual Tensor attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                        const Tensor& positions_T) = 0;
  /// Latent attention: [T, N * V]. The trainer's expands keys and values, the engine's keeps latents
  /// and looks at them through queries that took over the product (arXiv 2405.04434, section 2.1.2).
  virtual Tensor attend_latent(const LatentLayer& layer, const LatentInput& in,
                               const Tensor& positions_T);
  /// The same of ranks that have the stream whole: of layers without an indexer's choice, and of those
  /// with one where wants_sparse_projections(). Norms and orders with single operations and calls
  /// attend_latent(), unless there is a faster way.
  virtual Tensor attend_projected_latent(const LatentLayer& layer, const LatentProjection& in,
                                         const Tensor& positions_T);
  virtual bool wants_sparse_projections() const { return false; }
  /// The gated delta rule: [T, N V] in the accumulation precision. in.mixed_TE is what the convolution
  /// reads, in the activations' precision. The trainer's carries states along the segments, the engine's
  /// keeps one of each request.
  virtual Tensor attend_delta(const DeltaLayer& layer, const kernels::DeltaTokens& in);
  /// Not null where the products between two attentions may be one call: without gradients.
  virtual const kernels::BlockChains* chains() const { return nullptr; }
};

}  // namespace slime::model
