#pragma once

/// Feed-forward layers of experts, as config.json describes them: which layers have them, how many
/// a token visits, how it chooses, and what the files call their weights.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace slime::model {

/// How scores become weights: softmax(logits) over all experts, or sigmoid(logits) of each.
enum class RouterScore { kSoftmax, kSigmoid };

/// Names behind "model.layers.INDEX.". Experts are PREFIX.experts.NUMBER.{gate, up, down}.weight.
struct ExpertNames {
  std::string prefix = "mlp";
  std::string router = "gate";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string shared = "shared_expert";  // PREFIX.SHARED.*; its gate is PREFIX.SHARED_gate
  std::string selection_bias = "gate.e_score_correction_bias";

  bool operator==(const ExpertNames&) const = default;
};

struct ExpertsConfig {
  std::vector<bool> in_layer;  // [layers]; empty: no layer has experts
  int64_t count = 0;
  int64_t per_token = 0;
  int64_t width = 0;             // feed-forward width of one expert
  int64_t shared_width = 0;      // of the expert that every token visits; 0: none
  bool has_shared_gate = false;  // its output is multiplied by sigmoid of a product with the input
  RouterScore score = RouterScore::kSoftmax;
  /// Added to scores for the choice alone; float32 whatever the weights are, and not trained.
  bool has_selection_bias = false;
  /// Experts are chosen from the best groups; a group is as good as the sum of its best few.
  int64_t num_groups = 1;
  int64_t groups_per_token = 1;
  int64_t best_of_group = 2;
  bool normalizes = false;  // weights of the chosen are divided by their sum
  double scaling = 1;       // then multiplied by this
  bool has_router_bias = false;
  /// Files hold all experts as PREFIX.experts.{gate_up_proj, down_proj}: of each [gates; ups].
  bool are_stacked = false;
  /// The same names, with biases, matrices turned
  /// and gates and ups in turns, which are bounded by the limit (kernels/experts.h).
  bool are_in_turns = false;
  double swiglu_limit = 0;
  ExpertNames names;

  /// Routers choose among all experts by one product, which like the experts' has no bias: the form
  /// of fused kernels.
  bool has_one_choice() const { return !are_in_turns && !has_router_bias && num_groups == 1; }
  bool are_in(int64_t layer) const {
    return layer < static_cast<int64_t>(in_layer.size()) && in_layer[static_cast<size_t>(layer)];
  }
  bool are_anywhere() const { return std::ranges::count(in_layer, true) > 0; }
  bool operator==(const ExpertsConfig&) const = default;
};

}  // namespace slime::model
