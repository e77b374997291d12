/// DeepSeek-V2 and V2-Lite: latent attention, softmax routing inside the groups with the best expert,
/// weights as they are times a factor, shared experts, dense first layers.

#include <array>

#include "model/families/family.h"

namespace slime::model {

void read_deepseek_v2(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, latent_defaults(fields));
  read_latent_attention(fields, config);
  config.experts.best_of_group = 1;
  read_shared_experts(fields, config);
  static constexpr std::array<std::string_view, 1> kScores = {"softmax"};
  fields.one_of("scoring_func", kScores);
  static constexpr std::array<std::string_view, 2> kMethods = {"group_limited_greedy", "greedy"};
  if (fields.one_of("topk_method", kMethods).value_or("greedy") == "greedy")
    config.experts.num_groups = config.experts.groups_per_token = 1;
}

void write_deepseek_v2(const ModelConfig& config, json::object& out) {
  write_latent_attention(config, out);
  write_shared_experts(config, out);
  out["scoring_func"] = "softmax";
  out["topk_method"] = config.experts.num_groups > 1 ? "group_limited_greedy" : "greedy";
}

}  // namespace slime::model
