#pragma once

/// Multi-head latent attention (arXiv 2405.04434, section 2.1): keys and values of all heads are
/// expanded from one small latent vector of a token, beside one rotating key that heads share. The
/// engine's cache holds these two and nothing else.
///
/// Tensor-parallel ranks hold some of the heads. All of them compute the latents of all tokens, or
/// (sequence parallel) each those of its rows: then what goes to the others is a row's latents.
///
/// Dimensions: T tokens, S rows of the stream (model/layers/tensor_parallel.h), H hidden, N heads, Q
/// size of the latent of queries (H without one), L size of the latent, P numbers of a head that do not
/// rotate, R that do, V of a value.

#include <memory>

#include "model/layers/indexer.h"
#include "model/layers/layer_site.h"
#include "model/layers/mixer.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

struct LatentShape {
  int64_t hidden = 0;
  int64_t num_heads = 0;
  int64_t rotary_dim = 0;
  LatentConfig latent;
};
Costs latent_costs(const LatentShape& shape);

class LatentAttention final : public Mixer {
 public:
  /// Registers "self_attn.*" of the block.
  explicit LatentAttention(const LayerSite& site);
  LatentAttention(const LatentAttention&) = delete;  // the builder points at the parameters

  Tensor forward(const Tensor& input_SH, const Tensor& positions_T,
                 Attention& attention) const override;
  Costs costs() const override;
  CacheSpec cache() const override;
  std::string describe() const override;
  /// The first is what makes queries, or their latent, and the latent with the rotating key.
  const Products* products() const override;
  Tensor mix(const Tensor& projected_TE, const Tensor& positions_T,
             Attention& attention) const override;

 private:
  /// What heads are products of. Keys are not yet rotated.
  struct Latents {
    Tensor query_TQ;  // without a latent of queries the input itself
    Tensor latent_TL;
    Tensor rotary_key_TR;
  };
  Latents latents(const Tensor& input_SH) const;
  Latents of_all_rows(const Latents& own, int64_t tokens) const;
  void add_indexer(const LayerSite& site);
  /// Without gradients. input_TH: what `projected_TE` is a product of; looked at by an indexer alone.
  Tensor attended(const Tensor& projected_TE, const Tensor& input_TH, const Tensor& positions_T,
                  Attention& attention) const;

  TensorParallel tp_;
  LatentShape shape_;                 // of all heads
  LatentLayer layer_;                 // of this rank's heads
  Products products_;                 // [query_rows_ + L + R, H] and [H, N V]
  int64_t query_rows_ = 0;            // Q, or N (P + R) without a latent of queries
  kernels::Param query_norm_;         // [Q], undefined without a latent of queries
  kernels::MatrixParam query_;        // [N (P + R), Q], likewise
  std::unique_ptr<Indexer> indexer_;  // null: there is none
  Costs indexer_costs_;
};

std::unique_ptr<Mixer> make_latent_attention(const LayerSite& site);

}  // namespace slime::model
