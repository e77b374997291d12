#pragma once

/// The dense feed-forward layer: down(act(gate(x)) * up(x)) with SiLU or GELU, arXiv 2002.05202.
///
/// Dimensions: T tokens, H hidden, F feed-forward width.

#include <memory>

#include "model/config.h"
#include "model/layers/feed_forward.h"
#include "model/layers/layer_site.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

struct GatedMlpShape {
  int64_t hidden = 0;
  int64_t width = 0;
  bool has_bias = false;
  Activation activation = Activation::kSilu;
};
Costs gated_mlp_costs(const GatedMlpShape& shape);

class GatedMlp final : public FeedForward {
 public:
  /// Registers "NAME.*" of the block. Throws ConfigError for a width that tensor parallelism does
  /// not divide.
  GatedMlp(const LayerSite& site, const std::string& name, const GatedMlpShape& shape);
  GatedMlp(const GatedMlp&) = delete;  // the builder points at the parameters

  Tensor forward(const Tensor& input_TH, RouterPass* routers) const override;
  Tensor infer(const Tensor& input_TH, RouterPass* routers) const override;
  /// What this rank has of forward() or infer(), of all rows.
  Tensor partial(const Tensor& input_TH) const;
  Tensor inferred_partial(const Tensor& input_TH) const;
  Costs costs() const override { return gated_mlp_costs(shape_); }
  std::string describe() const override;
  const Products* gated_products() const override {
    return shape_.activation == Activation::kSilu ? &products_ : nullptr;
  }

 private:
  Tensor gated(const Tensor& gate_up_T2F) const;
  Tensor inferred_gated(const Tensor& input_TH) const;

  TensorParallel tp_;
  GatedMlpShape shape_;
  Products products_;  // [2 F, H], gates then ups, and [H, F]
};

/// "mlp.*" as the configuration says.
std::unique_ptr<FeedForward> make_gated_mlp(const LayerSite& site);

}  // namespace slime::model
