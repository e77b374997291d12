#include "model/layers/draft_layer.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/layers/norm_weight.h"

namespace slime::model {
namespace {

void refuse_drafts(std::vector<std::string>& problems, bool is_so, const char* what) {
  if (is_so) problems.push_back(std::string("draft layers are not computed ") + what);
}

void check_drafts(const ModelConfig& config, const comm::Mesh& mesh) {
  std::vector<std::string> problems = draft_layer_problems(config);
  refuse_drafts(problems, mesh.sizes().pp > 1, "where pipeline stages divide the layers");
  refuse_drafts(problems, TensorParallel(mesh).cuts_rows, "with sequence parallelism");
  if (!problems.empty()) throw ConfigError(problems);
}

/// The same model with a layer more for each draft layer.
ModelConfig with_draft_layers(const ModelConfig& config) {
  ModelConfig all = config;
  const auto layers = static_cast<size_t>(config.num_layers + config.drafts.computed);
  all.window.resize(layers, 0);
  if (config.has_experts()) all.experts.in_layer.resize(layers, true);
  if (config.drafts.has_experts_one_by_one) all.experts.are_stacked = false;
  return all;
}

}  // namespace

std::vector<std::string> draft_layer_problems(const ModelConfig& config) {
  const DraftConfig& drafts = config.drafts;
  std::vector<std::string> problems;
  refuse_drafts(problems, !config.indexer.in_layer.empty(), "with sparse attention");
  refuse_drafts(problems, drafts.has_own_embedding,
                "with an embedding of their own (mtp_use_dedicated_embeddings)");
  refuse_drafts(problems, drafts.count > 1 && !drafts.around.empty(),
                "where several have one projection");
  return problems;
}

DraftLayer::DraftLayer(const ModelConfig& config, int64_t which, const comm::Mesh& mesh,
                       const RotaryTable& rotary, Weights::Builder& builder,
                       const BlockLayers& layers)
    : eps_(config.norm_eps),
      hidden_(config.hidden_size),
      norms_add_one_(config.norms_add_one),
      hidden_is_first_(config.drafts.hidden_is_first) {
  check_drafts(config, mesh);
  const DraftConfig& drafts = config.drafts;
  const auto add_norm = [&](kernels::Param& norm, const std::string& name) {
    builder.add(norm, {{drafts.tensor(which, name), {hidden_}, {}}});
  };
  add_norm(embedding_norm_, drafts.embedding_norm);
  add_norm(hidden_norm_, drafts.hidden_norm);
  builder.add_plain(projection_,
                    {{drafts.tensor(which, drafts.projection), {hidden_, 2 * hidden_}, {}}});
  const ModelConfig with_drafts = with_draft_layers(config);
  block_[0] = std::make_unique<DecoderBlock>(
      LayerSite{with_drafts, static_cast<int>(config.num_layers + which), mesh, rotary, builder,
                drafts.block(which)},
      layers);
  add_norm(last_norm_, drafts.last_norm);
}

Tensor DraftLayer::joined(const Tensor& hidden_TH, const Tensor& embedding_TH) const {
  const auto normed = [&](const Tensor& x_TH, const kernels::Param& weight) {
    return kernels::rms_norm(x_TH, norm_weight(weight, norms_add_one_), eps_);
  };
  const Tensor hidden = normed(hidden_TH, hidden_norm_),
               embedding = normed(embedding_TH, embedding_norm_);
  return kernels::linear(
      hidden_is_first_ ? at::cat({hidden, embedding}, 1) : at::cat({embedding, hidden}, 1),
      projection_);
}

BlockNeeds DraftLayer::needs() const {
  Costs around;
  around.parameters = 2 * hidden_ * hidden_ + 3 * hidden_;
  around.flops_per_token = 4 * hidden_ * hidden_;
  around.saved = around.saved_selective = 5 * hidden_;  // both inputs, their norms, the sum
  around.gradients = 2 * hidden_;
  around.passing = 4 * hidden_;
  BlockNeeds needs = block_[0]->needs();
  needs.costs = around + needs.costs;
  return needs;
}

}  // namespace slime::model
