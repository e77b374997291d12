/// What families with experts read and write alike.

#include <fmt/format.h>

#include <algorithm>

#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMostExperts = 4096;
constexpr int64_t kMostWidth = int64_t{1} << 24;

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

void write_sparse_layers(const ModelConfig& config, json::object& out) {
  json::array dense;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (!config.experts.are_in(i)) dense.emplace_back(i);
  }
  out["decoder_sparse_step"] = 1;
  out["mlp_only_layers"] = std::move(dense);
}

}  // namespace slime::model
