#include "estimate/model_shape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "estimate/workload.h"
#include "model/adapter_tensors.h"
#include "model/network.h"

namespace slime::estimate {
namespace {

constexpr std::string_view kLayers = "model.layers.";

int64_t count(const model::NamedWeight& weight) {
  int64_t numbers = 1;
  for (const int64_t size : weight.full_shape) numbers *= size;
  return numbers;
}

/// Norms and biases have one dimension; a router is small, and every rank needs all of its scores.
bool is_whole(const model::NamedWeight& weight, const model::ExpertsConfig& experts) {
  const std::string router = experts.names.prefix + "." + experts.names.router + ".weight";
  return weight.full_shape.size() < 2 || weight.name.ends_with("." + router);
}

/// The number in "model.layers.7...".
size_t layer_of(std::string_view name) {
  size_t layer = 0;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer;
}

void add(const model::NamedWeight& weight, const model::ModelConfig& config, ModelShape& shape) {
  const std::string_view name = weight.name;
  if (!name.starts_with(kLayers)) {
    if (name.ends_with("embed_tokens.weight")) shape.embedding = count(weight);
    if (name == "lm_head.weight") shape.head = count(weight);
    return;
  }
  const size_t layer = layer_of(name);
  check(layer < shape.blocks.size(), "a weight is of one of the layers");
  BlockShape& block = shape.blocks[layer];
  const bool is_expert = name.find("." + config.experts.names.prefix + ".experts.") != name.npos;
  (is_expert                          ? block.experts
   : is_whole(weight, config.experts) ? block.whole
                                      : block.sliced) += count(weight);
}

AdapterShape& adapters_at(std::string_view name, ModelShape& shape) {
  if (name.starts_with(kLayers)) return shape.blocks.at(layer_of(name)).adapters;
  return name.starts_with("lm_head.") ? shape.head_adapters : shape.embedding_adapters;
}

/// Ranks that divide a matrix divide the half of its pair that faces its divided side; the other half, at
/// the residual stream, is whole on each. B stands behind its A.
void add_adapters(const std::vector<model::NamedWeight>& tensors, const model::ModelConfig& config,
                  ModelShape& shape) {
  constexpr std::string_view kOfPeft = "base_model.model.";
  const std::string experts = "." + config.experts.names.prefix + ".experts.";
  bool is_a_whole = false;
  for (const model::NamedWeight& weight : tensors) {
    const std::string_view name = std::string_view(weight.name).substr(kOfPeft.size());
    AdapterShape& adapters = adapters_at(name, shape);
    bool is_at_stream = is_whole(weight, config.experts);  // of a tensor that is trained whole
    if (name.ends_with(".lora_A.weight")) {
      is_at_stream = is_a_whole = weight.full_shape.back() == config.hidden_size;
    } else if (name.ends_with(".lora_B.weight")) {
      is_at_stream = !is_a_whole;
    } else if (name.find(".lora_embedding_") != name.npos) {
      is_at_stream = weight.full_shape.front() == config.hidden_size;
    }
    const bool is_expert = name.find(experts) != name.npos;
    (is_expert      ? adapters.experts
     : is_at_stream ? adapters.whole
                    : adapters.sliced) += count(weight);
  }
}

}  // namespace

int64_t ModelShape::adapters() const {
  int64_t all = embedding_adapters.numbers() + head_adapters.numbers();
  for (const BlockShape& block : blocks) all += block.adapters.numbers();
  return all;
}

int64_t ModelShape::parameters() const {
  int64_t all = embedding + head + hidden;  // and the final norm
  for (const BlockShape& block : blocks) all += block.parameters();
  return all;
}

int64_t ModelShape::active_parameters(const model::ModelConfig& config) const {
  int64_t active = head > 0 ? head : embedding;
  for (const BlockShape& block : blocks) {
    active += block.whole + block.sliced;
    if (block.experts > 0)
      active += block.experts / config.experts.count * config.experts.per_token;
  }
  return active;
}

AttentionShape attention_of(const model::ModelConfig& model) {
  AttentionShape shape{
      .heads = {.num_heads = model.num_heads,
                .num_kv_heads = model.latent.kv_rank > 0 ? model.num_heads : model.num_kv_heads,
                .head_dim = model.head_dim},
      .has_caps = model.score_cap > 0,
      .windows = model.window};
  if (shape.windows.empty()) shape.windows = {0};
  std::ranges::sort(shape.windows);
  const auto rest = std::ranges::unique(shape.windows);
  shape.windows.erase(rest.begin(), rest.end());
  return shape;
}

ModelShape shape_of(const model::ModelConfig& config, const model::AdapterForm* adapters) {
  // What a family's layers say of themselves needs no numbers.
  const std::unique_ptr<model::Network> network =
      model::make_blank_network(config, kPlannedPrecision);
  ModelShape shape{.model_type = config.model_type,
                   .hidden = config.hidden_size,
                   .vocab = config.vocab_size,
                   .attention = attention_of(config),
                   .blocks = std::vector<BlockShape>(network->blocks().size())};
  for (const model::NamedWeight& weight : network->weights().tensors()) add(weight, config, shape);
  for (size_t i = 0; i < shape.blocks.size(); ++i) {
    const model::BlockNeeds& needs = network->blocks()[i];
    BlockShape& block = shape.blocks[i];
    const bool has_experts = block.experts > 0;
    const int64_t visits = has_experts ? config.experts.per_token : 0;
    block.dispatched_numbers = visits * config.hidden_size;
    block.expert_flops = 6.0 * static_cast<double>(visits * config.experts.width) *
                         static_cast<double>(config.hidden_size);
    block.costs = needs.costs;
    block.cache = needs.cache;
    block.window = config.window.empty() ? 0 : config.window[i];
  }
  if (adapters != nullptr) {
    shape.trains_adapters = true;
    const model::AdapterTensors tensors(config, network->weights(), *adapters,
                                        comm::Mesh::single());
    add_adapters(tensors.weights().tensors(), config, shape);
  }
  return shape;
}

DraftShape draft_layers_shape(const model::ModelConfig& config) {
  model::ModelConfig with = config;
  with.drafts.computed = with.drafts.count;
  const auto plain = model::make_blank_network(config, kPlannedPrecision),
             layered = model::make_blank_network(with, kPlannedPrecision);
  const auto own = layered->blocks().subspan(plain->blocks().size());
  return {.parameters = layered->weights().num_parameters() - plain->weights().num_parameters(),
          .are_layers = true,
          .blocks = {own.begin(), own.end()}};
}

DraftShape draft_model_shape(const model::Eagle3& draft) {
  return {.parameters = draft.weights().num_parameters(),
          .blocks = {draft.blocks().begin(), draft.blocks().end()}};
}

int64_t coded_weight_bytes(const model::ModelConfig& config) {
  const model::Precision precision{
      .weights = at::kBFloat16, .matrices = kernels::MatrixFormat::kFp8Blocks, .device = at::kMeta};
  return model::make_blank_network(config, precision)->weights().num_bytes();
}

}  // namespace slime::estimate
