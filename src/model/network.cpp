#include "model/network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/random.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/soft_cap.h"
#include "model/adapters.h"
#include "model/families/family.h"
#include "model/layers/draft_layer.h"
#include "model/model_files.h"
#include "model/pipeline_layers.h"

namespace slime::model {
namespace {

const Family& family_of(const ModelConfig& config) {
  const Family* family = find_family(config.model_type);
  if (family == nullptr) {
    throw ConfigError("model_type \"" + config.model_type +
                      "\" is not known; supported here: " + family_names());
  }
  return *family;
}

/// What published files hold besides weights, or twice: rotary frequencies of old exports, the tied
/// head, layers that predict further tokens.
ModelFiles::Surplus surplus_of(const ModelConfig& config, const std::string& name) {
  const bool is_harmless = name.ends_with(".rotary_emb.inv_freq") ||
                           (config.ties_embeddings && name == "lm_head.weight");
  // The shape of an unpacked matrix, which config.json tells too.
  const bool is_known =
      config.stored_form == StoredForm::kInt4Groups && name.ends_with(".weight_shape");
  if (is_harmless || is_known) return ModelFiles::Surplus::kIgnored;
  const bool is_carried = std::ranges::any_of(
      config.carried_prefixes, [&](const auto& prefix) { return name.starts_with(prefix); });
  return is_carried ? ModelFiles::Surplus::kCarried : ModelFiles::Surplus::kProblem;
}

/// The layers, and what comes before and after them, that another pipeline stage reads.
bool is_of_another_stage(const ModelConfig& config, const comm::Mesh& mesh,
                         const std::string& name) {
  const comm::ParallelLayout& sizes = mesh.sizes();
  if (sizes.pp == 1) return false;
  const std::string layers = config.tensor_prefix + "layers.";
  if (!name.starts_with(layers))
    return name == config.tensor_prefix + "embed_tokens.weight" ||
           name == config.tensor_prefix + "norm.weight" || name == "lm_head.weight";
  int64_t layer = -1;
  std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  const std::vector<LayerRange> own = layers_of_stage(sizes, mesh.at().pp, config.num_layers);
  return layer >= 0 && layer < config.num_layers &&
         std::ranges::none_of(own, [&](const LayerRange& range) {
           return layer >= range.begin && layer < range.end;
         });
}

/// Of experts that other ranks hold.
bool is_of_anothers_expert(const ModelConfig& config, const comm::Mesh& mesh,
                           const std::string& name) {
  if (mesh.ep().is_alone() || !config.has_experts()) return false;
  const std::string layers = config.tensor_prefix + "layers.";
  const std::string middle = "." + config.experts.names.prefix + ".experts.";
  const size_t found = name.find(middle);
  if (found == std::string::npos) return false;
  const bool is_draft = config.drafts.has_block(std::string_view(name).substr(0, found + 1));
  if (!is_draft && !name.starts_with(layers)) return false;
  int64_t layer = -1, expert = -1;
  if (!is_draft) std::from_chars(name.data() + layers.size(), name.data() + found, layer);
  std::from_chars(name.data() + found + middle.size(), name.data() + name.size(), expert);
  const int64_t each = config.experts.count / mesh.ep().size(), first = each * mesh.at().ep;
  return (is_draft || config.experts.are_in(layer)) && expert >= 0 &&
         expert < config.experts.count && (expert < first || expert >= first + each);
}

bool is_zero_at_first(const std::string& name) {
  return name.ends_with(".bias") || name.ends_with("_bias") || name.ends_with(".sinks");
}

/// Of gated delta nets: norms are not those of 1 + weight, and heads forget at rates of their own.
bool fill_delta_vector(const std::string& name, Tensor view, uint64_t seed, size_t stream) {
  constexpr double kFastest = 16;
  if (name.ends_with("linear_attn.norm.weight") || name.ends_with("linear_attn.dt_bias")) {
    view.fill_(1);
    return true;
  }
  if (!name.ends_with("linear_attn.A_log")) return false;
  for (int64_t i = 0; i < view.numel(); ++i)
    view[i].fill_(std::log(kFastest * uniform(seed, stream, static_cast<uint64_t>(i))));
  return true;
}

void compute_drafts(DraftConfig& drafts, const ModelFiles& files,
                    const std::filesystem::path& directory) {
  if (drafts.count == 0 || !files.tensors().contains(drafts.tensor(0, drafts.projection))) {
    throw ConfigError(directory.string() +
                      ": has no draft layers, which predict further tokens (multi-token "
                      "prediction): config.json tells of none, or the files lack them");
  }
  drafts.computed = drafts.count;
  drafts.has_experts_one_by_one =
      files.tensors().contains(drafts.block(0) + "mlp.experts.0.gate_proj.weight");
}

}  // namespace

bool is_beside_network(const ModelConfig& config, const std::string& name) {
  return surplus_of(config, name) != ModelFiles::Surplus::kProblem;
}

std::unique_ptr<Network> make_blank_network(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh) {
  return family_of(config).make(config, precision, mesh);
}

std::unique_ptr<Network> load_network(const std::filesystem::path& directory,
                                      const Precision& precision, const comm::Mesh& mesh,
                                      DraftLayers drafts) {
  ModelConfig config = read_model_config(directory);
  const ModelFiles files(directory);
  if (drafts == DraftLayers::kComputed) compute_drafts(config.drafts, files, directory);
  std::unique_ptr<Network> network = make_blank_network(config, precision, mesh);
  files.read_into(
      network->weights(), config.stored_form, config.fp8_block,
      [&](const std::string& name) {
        const bool is_elsewhere =
            is_of_another_stage(config, mesh, name) || is_of_anothers_expert(config, mesh, name);
        return is_elsewhere ? ModelFiles::Surplus::kIgnored : surplus_of(config, name);
      },
      precision.matrices);
  return network;
}

std::string why_no_draft_layers(const ModelConfig& config) {
  if (config.drafts.count == 0) return "config.json tells of no draft layer";
  const std::vector<std::string> problems = draft_layer_problems(config);
  return problems.empty() ? "" : problems.front();
}

ModelConfig read_config_with_drafts(const std::filesystem::path& directory) {
  ModelConfig config = read_model_config(directory);
  compute_drafts(config.drafts, ModelFiles(directory), directory);
  return config;
}

void check_weight_files(const std::filesystem::path& directory) {
  const ModelConfig config = read_model_config(directory);
  const ModelFiles files(directory);
  const std::unique_ptr<Network> network = make_blank_network(config, {.device = at::kMeta});
  files.check_headers(network->weights(), config.stored_form, config.fp8_block,
                      [&](const std::string& name) { return surplus_of(config, name); });
}

std::unique_ptr<Network> make_network(const ModelConfig& config, const Precision& precision,
                                      uint64_t seed, const comm::Mesh& mesh) {
  const comm::ParallelLayout& sizes = mesh.sizes();
  check(sizes.tp == 1 && sizes.pp == 1 && sizes.ep == 1 && sizes.etp == 1,
        "fresh weights are made whole");
  std::unique_ptr<Network> network = make_blank_network(config, precision, mesh);
  Weights& weights = network->weights();
  for (size_t stream = 0; stream < weights.tensors().size(); ++stream) {
    const NamedWeight& weight = weights.tensors()[stream];
    Tensor view = Weights::view(weights.flat(), weight);
    if (fill_delta_vector(weight.name, view, seed, stream)) continue;
    if (is_zero_at_first(weight.name)) continue;  // as the buffer is
    if (weight.shape.size() < 2) {
      view.fill_(config.norms_add_one ? 0 : 1);
      continue;
    }
    Tensor sampled = at::empty(weight.shape, at::kFloat);
    float* out = sampled.data_ptr<float>();
    kernels::cpu::parallel_ranges(sampled.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<float>(config.initializer_range *
                                    normal(seed, stream, static_cast<uint64_t>(i)));
      }
    });
    view.copy_(sampled);
  }
  return network;
}

std::unique_ptr<Network> make_uniform_network(const ModelConfig& config, const Precision& precision,
                                              double bound, const comm::Mesh& mesh) {
  std::unique_ptr<Network> network = make_blank_network(config, precision, mesh);
  if (network->weights().has_formats()) {
    Precision plain = precision;
    plain.matrices = kernels::MatrixFormat::kPlain;
    network->weights().copy_from(make_uniform_network(config, plain, bound, mesh)->weights());
    return network;
  }
  Tensor(network->weights().flat()).uniform_(-bound, bound);
  return network;
}

Tensor Network::draft(int64_t /*layer*/, const Tensor& /*hidden_TH*/, const TokenBatch& /*batch*/,
                      Attention& /*attention*/) {
  throw BugError("draft() is for networks with draft layers");
}

Tensor Network::embedded(const TokenBatch& /*batch*/) const {
  throw BugError("embedded() is for networks with an embedding");
}

kernels::LogProbs Network::draft_log_probs(const Tensor& /*hidden_RH*/,
                                           const Tensor& /*target_R*/) const {
  throw BugError("draft_log_probs() is for networks with draft layers");
}

Weights& Network::trained() {
  const bool has_one = adapters_ && !adapters_->chooses_by_row() && adapters_->at(0);
  return has_one ? adapters_->weights() : weights();
}

Tensor Network::gradient_of_products(const Tensor& gradient_RV, const Tensor& hidden_RH) const {
  const double cap = config().logit_cap;
  if (cap == 0) return gradient_RV;
  constexpr int64_t kRowsAtOnce = 1024;  // logits are large
  const at::NoGradGuard no_grad;
  const Tensor before_RV = at::empty_like(gradient_RV);
  for (int64_t row = 0; row < hidden_RH.size(0); row += kRowsAtOnce) {
    const int64_t end = std::min(row + kRowsAtOnce, hidden_RH.size(0));
    const Tensor slope = kernels::soft_cap_slope(logits(hidden_RH.slice(0, row, end)), cap);
    before_RV.slice(0, row, end).copy_(gradient_RV.slice(0, row, end) * slope);
  }
  return before_RV;
}

}  // namespace slime::model
