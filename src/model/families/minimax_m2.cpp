/// MiniMax-M2: norms of queries and keys over all heads, rotary_dim numbers of each head rotate,
/// sigmoid routing with a selection bias, experts in all layers and no shared one.

#include <array>

#include "model/families/family.h"

namespace slime::model {

void read_minimax_m2(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config,
              {.kv_heads = 8,
               .has_partial_rotary = true,
               .rotary_dim = fields.integer("rotary_dim", 2, 4096)});
  config.rotary_dim = fields.required().integer("rotary_dim", 2, config.head_dim).value_or(2);
  fields.expect(config.rotary_dim % 2 == 0, "rotary_dim", "must be even");
  if (fields.boolean("use_qk_norm").value_or(true)) config.qk_norm = QkNorm::kAllHeads;
  static constexpr std::array<std::string_view, 1> kNormTypes = {"per_layer"};
  fields.one_of("qk_norm_type", kNormTypes);
  static constexpr std::array<std::string_view, 1> kScores = {"sigmoid"};
  fields.one_of("scoring_func", kScores);
  fields.number("shared_intermediate_size", 0, 0);
  for (const int64_t kind : fields.numbers<int64_t>("attn_type_list"))
    fields.expect(kind == 1, "attn_type_list", "must be 1 for each layer: softmax attention");
  read_windows(fields, config, 0, 0);
  read_expert_sizes(fields, config, "num_local_experts", "intermediate_size");
  ExpertsConfig& experts = config.experts;
  experts.in_layer.assign(static_cast<size_t>(config.num_layers), true);
  experts.score = RouterScore::kSigmoid;
  experts.normalizes = true;
  experts.has_selection_bias = fields.boolean("use_routing_bias").value_or(true);
  experts.names = {.prefix = "block_sparse_moe",
                   .gate = "w1",
                   .up = "w3",
                   .down = "w2",
                   .selection_bias = "e_score_correction_bias"};
}

void write_minimax_m2(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  out["rotary_dim"] = config.rotary_dim;
  out["use_qk_norm"] = config.qk_norm == QkNorm::kAllHeads;
  out["qk_norm_type"] = "per_layer";
  out["scoring_func"] = "sigmoid";
  out["use_routing_bias"] = experts.has_selection_bias;
  out["num_local_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
}

}  // namespace slime::model
