#include "roles/networks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/expression.h"
#include "model/adapters.h"
#include "model/placement.h"
#include "setup/named_model.h"

namespace slime::roles {

std::vector<std::string> frozen_names(const config::RunConfig& config,
                                      const model::Weights& weights, const comm::Mesh& mesh) {
  const bool lists_trained = !config.only_train_params_name_list.empty();
  const auto& patterns =
      lists_trained ? config.only_train_params_name_list : config.freeze_params_name_list;
  const std::string flag =
      lists_trained ? "--only-train-params-name-list" : "--freeze-params-name-list";
  std::vector<std::string> frozen;
  const auto is_of_indexer = [&](const model::NamedWeight& weight) {
    return weight.name.find(".indexer.") != std::string::npos && config.freeze_indexer;
  };
  if (patterns.empty()) {
    for (const model::NamedWeight& weight : weights.tensors())
      if (is_of_indexer(weight)) frozen.push_back(weight.name);
    return frozen;
  }
  std::vector<Expression> expressions;
  for (const std::string& pattern : patterns) expressions.emplace_back(pattern, flag);
  bool has_match = false;
  for (const model::NamedWeight& weight : weights.tensors()) {
    const bool matches = std::ranges::any_of(
        expressions, [&](const Expression& expression) { return expression.is_in(weight.name); });
    has_match |= matches;
    if (matches != lists_trained || is_of_indexer(weight)) frozen.push_back(weight.name);
  }
  if (!mesh.pp().is_alone() || !mesh.ep().is_alone()) return frozen;
  if (!has_match)
    throw ConfigError(fmt::format("{} {}: matches no weight; the first is called {}", flag,
                                  fmt::join(patterns, " "), weights.tensors().front().name));
  if (frozen.size() == weights.tensors().size())
    throw ConfigError(flag + ": nothing is left to train");
  return frozen;
}

void check_weight_lists(const config::RunConfig& config, const model::ModelConfig& model) {
  if (config.debug_rollout_only ||
      (config.only_train_params_name_list.empty() && config.freeze_params_name_list.empty()))
    return;
  const auto network = model::make_blank_network(model, {.device = at::kMeta});
  frozen_names(config, network->weights(), comm::Mesh::single());
}

train::OtherNetworks load_other_networks(const config::RunConfig& config, model::Network& trained,
                                         const model::Precision& precision,
                                         const comm::Mesh& mesh) {
  train::OtherNetworks others;
  const auto load = [&](const std::string& directory,
                        model::DraftLayers drafts = model::DraftLayers::kCarried) {
    return model::load_network(directory, precision, mesh, drafts);
  };
  // Of the shape of what is trained, whose numbers they may get.
  const model::DraftLayers drafts = model::draft_layers_of(trained.config());
  // Beside adapters the reference is the network without them, unless it began elsewhere.
  const bool is_base = config.trains_adapters() && !setup::is_model_directory(config.load);
  if (config.needs_reference() && !is_base) {
    others.reference = load(setup::reference_directory(config, [](const std::string&) {}), drafts);
  }
  if (config.use_opd && config.opd_type == "megatron")
    others.teacher = load(config.opd_teacher_load);
  if (config.has_advantages() && config.keep_old_actor)
    others.old_actor = trained.adapters() != nullptr
                           ? model::with_another_adapter(trained, precision, mesh)
                           : load(config.hf_checkpoint, drafts);
  if (config.has_critic()) {
    const std::string& own =
        config.critic != nullptr ? config.critic->critic_load : config.critic_load;
    others.critic = load(own.empty() ? config.hf_checkpoint : own);
  }
  return others;
}

kernels::MatrixFormat engine_matrices(const config::RunConfig& config) {
  return config.has_codes() ? kernels::MatrixFormat::kFp8Blocks : kernels::MatrixFormat::kPlain;
}

model::Precision engine_precision(const config::RunConfig& config) {
  model::Precision precision = model::precision_on(config.device, config.dtype);
  precision.matrices = engine_matrices(config);
  return precision;
}

std::unique_ptr<model::Network> make_blank_copy(model::Network& network,
                                                const model::Precision& precision) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<model::Network> copy = model::make_blank_network(network.config(), precision);
  Tensor constants_C = copy->weights().flat_constants();
  constants_C.copy_(network.weights().flat_constants());
  if (const model::Adapters* adapters = network.adapters()) {
    copy->weights().copy_from(network.weights());  // no update brings them
    model::add_adapters(*copy, adapters->at(0)->form());
  }
  return copy;
}

}  // namespace slime::roles
