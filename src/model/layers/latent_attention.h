#pragma once

/// Multi-head latent attention (arXiv 2405.04434, section 2.1): keys and values of all heads are
/// expanded from one small latent vector of a token, beside one rotating key that heads share. The
/// engine's cache holds these two and nothing else.
///
/// Dimensions: T tokens, H hidden, N heads, L size of the latent, P numbers of a head that do not
/// rotate, R that do, V of a value.

#include <memory>

#include "model/layers/indexer.h"
#include "model/layers/layer_site.h"
#include "model/layers/mixer.h"

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
  /// Registers "self_attn.*" of the block. Throws ConfigError for what it does not do yet:
  /// tensor-parallel slices, a GPU.
  explicit LatentAttention(const LayerSite& site);
  LatentAttention(const LatentAttention&) = delete;  // the builder points at the parameters

  Tensor forward(const Tensor& input_TH, const Tensor& positions_T,
                 Attention& attention) const override;
  Costs costs() const override;
  CacheSpec cache() const override;
  std::string describe() const override;

 private:
  Tensor query_latent(const Tensor& input_TH) const;
  void add_indexer(const LayerSite& site);

  LatentShape shape_;
  LatentLayer layer_;
  kernels::Param query_;              // [N (P + R), H], or from the queries' latent
  kernels::Param query_down_;         // [q_rank, H], undefined without a latent of queries
  kernels::Param query_norm_;         // [q_rank]
  kernels::Param key_value_down_;     // [L + R, H]
  kernels::Param latent_norm_;        // [L]
  kernels::Param output_;             // [H, N V]
  std::unique_ptr<Indexer> indexer_;  // null: there is none
  Costs indexer_costs_;
  Tensor rotary_order_R_;  // int64, undefined where halves rotate with each other
};

std::unique_ptr<Mixer> make_latent_attention(const LayerSite& site);

}  // namespace slime::model
