/// What families with experts read and write alike.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMostExperts = 4096;
constexpr int64_t kMostWidth = int64_t{1} << 24;

/// n_group and topk_group.
void read_groups(const FieldReader& fields, ExpertsConfig& experts) {
  experts.num_groups = fields.integer("n_group", 1, kMostExperts).value_or(1);
  experts.groups_per_token = fields.integer("topk_group", 1, kMostExperts).value_or(1);
  const int64_t size = experts.count / experts.num_groups;
  if (experts.num_groups == 1) return;
  fields.expect(size * experts.num_groups == experts.count && size >= experts.best_of_group,
                "n_group", "must divide the experts into groups of two or more");
  fields.expect(experts.groups_per_token <= experts.num_groups &&
                    experts.per_token <= size * experts.groups_per_token,
                "topk_group", "must be groups that there are, with experts enough for a token");
}

}  // namespace

void read_expert_sizes(const FieldReader& fields, ModelConfig& config, std::string_view count,
                       std::string_view width) {
  const FieldReader needed = fields.required();
  ExpertsConfig& experts = config.experts;
  experts.count = needed.integer(count, 1, kMostExperts).value_or(1);
  experts.width = needed.integer(width, 1, kMostWidth).value_or(1);
  experts.per_token = needed.integer("num_experts_per_tok", 1, kMostExperts).value_or(1);
  fields.expect(experts.per_token <= experts.count, "num_experts_per_tok",
                fmt::format("must be at most {} ({})", count, experts.count));
}

void read_sparse_layers(const FieldReader& fields, ModelConfig& config) {
  const int64_t every = fields.integer("decoder_sparse_step", 1, 4096).value_or(1);
  const auto dense = fields.numbers<int64_t>("mlp_only_layers");
  config.experts.in_layer.clear();
  for (int64_t i = 0; i < config.num_layers; ++i)
    config.experts.in_layer.push_back((i + 1) % every == 0 &&
                                      std::ranges::find(dense, i) == dense.end());
}

void read_shared_experts(const FieldReader& fields, ModelConfig& config) {
  read_expert_sizes(fields, config, "n_routed_experts", "moe_intermediate_size");
  ExpertsConfig& experts = config.experts;
  const FieldReader needed = fields.required();
  const int64_t dense = needed.integer("first_k_dense_replace", 0, config.num_layers).value_or(0);
  fields.number("moe_layer_freq", 1, 1);
  for (int64_t i = 0; i < config.num_layers; ++i) experts.in_layer.push_back(i >= dense);
  experts.shared_width = experts.width * fields.integer("n_shared_experts", 0, 64).value_or(1);
  experts.names.shared = "shared_experts";
  experts.scaling = needed.number("routed_scaling_factor", 1e-6, 1e6).value_or(1);
  read_groups(fields, experts);
}

void write_shared_experts(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  const auto first = std::ranges::find(experts.in_layer, true);
  out["first_k_dense_replace"] = first - experts.in_layer.begin();
  out["moe_layer_freq"] = 1;
  out["n_routed_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["moe_intermediate_size"] = experts.width;
  out["n_shared_experts"] = experts.shared_width / experts.width;
  out["routed_scaling_factor"] = experts.scaling;
  out["n_group"] = experts.num_groups;
  out["topk_group"] = experts.groups_per_token;
}

void read_sigmoid_routing(const FieldReader& fields, ModelConfig& config) {
  static constexpr std::array<std::string_view, 1> kScores = {"sigmoid"};
  fields.one_of("scoring_func", kScores);
  static constexpr std::array<std::string_view, 1> kMethods = {"noaux_tc"};
  fields.one_of("topk_method", kMethods);
  config.experts.score = RouterScore::kSigmoid;
  config.experts.has_selection_bias = true;
  config.experts.normalizes = fields.boolean("norm_topk_prob").value_or(true);
}

void write_sigmoid_routing(const ModelConfig& config, json::object& out) {
  out["scoring_func"] = "sigmoid";
  out["topk_method"] = "noaux_tc";
  out["norm_topk_prob"] = config.experts.normalizes;
}

void read_mlp_layer_types(const FieldReader& fields, ModelConfig& config) {
  const auto types = fields.strings("mlp_layer_types");
  if (types.empty()) return;
  fields.expect(static_cast<int64_t>(types.size()) == config.num_layers, "mlp_layer_types",
                fmt::format("must have one entry per layer ({})", config.num_layers));
  config.experts.in_layer.assign(types.size(), false);
  for (size_t i = 0; i < types.size(); ++i) {
    fields.expect(types[i] == "sparse" || types[i] == "dense", "mlp_layer_types",
                  "must be dense or sparse for each layer");
    config.experts.in_layer[i] = types[i] == "sparse";
  }
}

void write_sparse_layers(const ModelConfig& config, json::object& out) {
  json::array dense;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (!config.experts.are_in(i)) dense.emplace_back(i);
  }
  out["decoder_sparse_step"] = 1;
  out["mlp_only_layers"] = std::move(dense);
}

}  // namespace slime::model
