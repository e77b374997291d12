#pragma once

/// A mixer whose memory is a state instead of keys and values: a short convolution, the gated delta rule,
/// and a norm that a gate multiplies (arXiv 2412.06464).
///
///   [q, k, v, z, b, a] = W x       mixed = silu(conv([q, k, v]))
///   o = rule(mixed, log decay from a, rate = sigmoid(b))
///   y = W_o (norm(o) * silu(z))
///
/// Tensor-parallel ranks hold some of the key heads and the value heads that share them.
///
/// Dimensions: T tokens, L rows of the stream (model/layers/tensor_parallel.h), H hidden, K key heads, N value heads, D key size, V value size, E = 2 K D + N V.

#include <memory>

#include "model/layers/layer_site.h"
#include "model/layers/mixer.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

Costs delta_costs(int64_t hidden, const DeltaConfig& config);

class GatedDeltaNet final : public Mixer {
 public:
  /// Registers "linear_attn.*" of the block. Throws ConfigError for heads that do not divide, and on a GPU
  /// for sizes that its kernels lack.
  explicit GatedDeltaNet(const LayerSite& site);
  GatedDeltaNet(const GatedDeltaNet&) = delete;  // the builder points at the parameters

  Tensor forward(const Tensor& input_LH, const Tensor& positions_T,
                 Attention& attention) const override;
  Costs costs() const override { return delta_costs(hidden_, config_); }
  CacheSpec cache() const override;
  std::string describe() const override;

 private:
  TensorParallel tp_;
  int64_t hidden_;
  DeltaConfig config_;  // of all heads
  double norm_eps_;
  DeltaLayer layer_;                 // of this rank's heads
  kernels::MatrixParam projection_;  // [E + N V + 2 N, H], in the order of the files
  Tensor column_order_;              // int64: its outputs as q, k, v, z, b, a; undefined: they are
  kernels::Param decay_bias_N_;
  kernels::Param a_log_N_;
  kernels::Param norm_V_;
  Product output_;  // [H, N V]
};

/// In the layers that the configuration names, grouped-query attention in the others.
std::unique_ptr<Mixer> make_delta_net_or_attention(const LayerSite& site);

}  // namespace slime::model
