#include "model/merge_adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <map>
#include <string>

#include "core/error.h"
#include "model/adapters.h"
#include "model/save.h"

namespace slime::model {
namespace {

constexpr const char* kHeadWeight = "lm_head.weight";

/// The tensors of a network by name; those of the merged one, whose numbers change.
using ByName = std::map<std::string, Tensor>;

ByName views_of(const Weights& weights) {
  ByName views;
  for (const NamedWeight& weight : weights.tensors())
    views[weight.name] = Weights::view(weights.flat(), weight);
  return views;
}

Tensor& tensor_of(ByName& to, const std::string& name) {
  const auto found = to.find(name);
  if (found == to.end()) throw ConfigError(name + ": an adapter is for it, and it is not there");
  return found->second;
}

/// [E, O, I] into all experts of a layer, in the form that the model has them.
void add_to_experts(ByName& to, const ModelConfig& config, const std::string& module,
                    const Tensor& delta_EOI) {
  if (const auto found = to.find(module); found != to.end()) {
    found->second += config.experts.are_in_turns ? delta_EOI.transpose(1, 2) : delta_EOI;
    return;
  }
  const std::string prefix = module.substr(0, module.rfind('.'));
  const ExpertNames& names = config.experts.names;
  const bool is_down = module.ends_with(".down_proj");
  for (int64_t e = 0; e < delta_EOI.size(0); ++e) {
    int64_t row = 0;
    const auto add = [&](const std::string& name) {
      Tensor& weight = tensor_of(to, fmt::format("{}.{}.{}.weight", prefix, e, name));
      weight += delta_EOI[e].narrow(0, row, weight.size(0));
      row += weight.size(0);
    };
    if (is_down) {
      add(names.down);
    } else {
      add(names.gate);
      add(names.up);
    }
  }
}

/// The adapter's own tensors, in float32.
ByName tensors_of(const AdapterTensors& adapter) {
  ByName tensors;
  for (const auto& [name, view] : views_of(adapter.weights())) tensors[name] = view.to(at::kFloat);
  return tensors;
}

}  // namespace

std::unique_ptr<Network> merged(Network& network) {
  const at::NoGradGuard no_grad;
  check(network.adapters() != nullptr, "a network without an adapter has nothing to merge");
  check_whole(network.weights());
  const AdapterTensors& adapter = *network.adapters()->at(0);
  const AdapterForm& form = adapter.form();
  const AdaptersOff off(network.adapters());  // saved modules are the base's now
  ModelConfig config = network.config();
  const std::string embedding = config.tensor_prefix + "embed_tokens";
  const bool unties = config.ties_embeddings &&
                      (form.find("lm_head") != nullptr || form.find(embedding) != nullptr ||
                       form.saves(kHeadWeight) || form.saves(embedding + ".weight"));
  if (unties) config.ties_embeddings = false;
  auto out = make_blank_network(config, {.weights = at::kFloat, .activations = at::kFloat});

  const ByName base = views_of(network.weights());
  ByName to = views_of(out->weights());
  for (auto& [name, weight] : to) {
    const bool is_untied = unties && name == kHeadWeight;
    weight.copy_(base.at(is_untied ? embedding + ".weight" : name));
  }
  Tensor(out->weights().flat_constants()).copy_(network.weights().flat_constants());

  constexpr std::string_view kPeft = "base_model.model.";
  const ByName tensors = tensors_of(adapter);
  for (const AdapterForm::Pair& pair : form.pairs) {
    const std::string name = std::string(kPeft) + pair.module;
    if (pair.module == embedding) {
      tensor_of(to, embedding + ".weight") +=
          pair.scale *
          at::matmul(tensors.at(name + ".lora_embedding_B"), tensors.at(name + ".lora_embedding_A"))
              .t();
      continue;
    }
    const Tensor delta = pair.scale * at::matmul(tensors.at(name + ".lora_B.weight"),
                                                 tensors.at(name + ".lora_A.weight"));
    if (delta.dim() == 3) {
      add_to_experts(to, config, pair.module, delta);
    } else {
      tensor_of(to, pair.module + ".weight") += delta;
    }
  }
  for (const std::string& saved : form.saved)
    tensor_of(to, saved).copy_(tensors.at(std::string(kPeft) + saved));
  return out;
}

}  // namespace slime::model
