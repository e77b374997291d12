#pragma once

/// The feed-forward layer of many experts of which each token visits a few, with one that all visit
/// where a family has it (arXiv 1701.06538, 2401.06066).
///
///   y = sum over chosen e of weight_e * expert_e(x)  [+ shared(x), or sigmoid(gate x) * shared(x)]
///
/// Dimensions: T tokens, H hidden, E experts, K visits of each token, F width of an expert.

#include <memory>

#include "kernels/experts.h"
#include "model/layers/expert_parallel.h"
#include "model/layers/feed_forward.h"
#include "model/layers/gated_mlp.h"
#include "model/layers/layer_site.h"

namespace slime::model {

Costs expert_costs(int64_t hidden, const ExpertsConfig& config);

class ExpertLayer final : public FeedForward {
 public:
  /// Registers router, this rank's experts and the shared expert of the block. Throws ConfigError where
  /// they do not divide.
  explicit ExpertLayer(const LayerSite& site);
  ExpertLayer(const ExpertLayer&) = delete;  // the builder points at the parameters

  Tensor forward(const Tensor& input_TH, RouterPass* routers) const override;
  Tensor infer(const Tensor& input_TH, RouterPass* routers) const override;
  Costs costs() const override;
  std::string describe() const override;
  std::optional<kernels::RoutedExperts> routed_experts(RouterPass* routers) const override;

 private:
  void add_experts(const LayerSite& site);
  void add_stacked_experts(const LayerSite& site);
  void add_experts_in_turns(const LayerSite& site);
  Weights::Builder::Component stacked(const LayerSite& site, const char* tail,
                                      std::vector<int64_t> shape, std::vector<Slice> of_each,
                                      bool is_bias = false) const;
  bool routes_all_rows() const { return where_.is_alone() || routes_all_rows_; }
  Tensor gated_shared(const Tensor& input_TH, const Tensor& output_TH) const;
  std::optional<Tensor> routed_at_once(const Tensor& input_TH, RouterPass* routers) const;
  Tensor routed(const Tensor& input_TH, RouterPass* routers) const;
  Tensor inferred(const Tensor& input_TH, RouterPass* routers) const;
  Tensor routed_on_ranks(const Tensor& input_LH, RouterPass* routers) const;
  struct Visits {
    Tensor expert_TK, weight_TK;
  };
  Visits visits_of(const Tensor& input_TH, RouterPass* routers) const;
  Visits exact_visits(const Tensor& input_TH, RouterPass* routers) const;
  Tensor router_logits(const Tensor& input_TH, RouterPass* routers) const;
  Tensor shared_gate(const Tensor& input_TH) const;
  kernels::RoutedExperts operation(RouterPass* routers) const;
  bool is_one_operation() const;

  int64_t index_;  // of the block
  int64_t hidden_;
  ExpertsConfig config_;
  TensorParallel tp_;
  ExpertParallel where_;
  bool routes_all_rows_;  // comm::ParallelLayout
  kernels::MatrixParam router_EH_;
  kernels::Param router_bias_E_;  // undefined without one
  Tensor selection_bias_E_;       // float32; undefined: scores choose as they are
  kernels::ExpertStack stack_;
  std::unique_ptr<GatedMlp> shared_;     // null: there is none
  kernels::MatrixParam shared_gate_1H_;  // undefined: it always counts in full
};

/// Experts in the layers that the configuration names, a dense layer in the others.
std::unique_ptr<FeedForward> make_experts_or_mlp(const LayerSite& site);

}  // namespace slime::model
