#include "model/decoder.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/error.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "model/layers/block_chain.h"
#include "model/layers/decoder_block.h"
#include "model/layers/expert_layer.h"
#include "model/layers/gated_mlp.h"
#include "model/layers/grouped_query_attention.h"
#include "model/layers/latent_attention.h"
#include "model/layers/norm_weight.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A block that keeps only its input and runs again in the backward. The parameters' gradients are
/// added by the kernels of that second run.
struct RecomputedBlock : torch::autograd::Function<RecomputedBlock> {
  static variable_list forward(AutogradContext* ctx, const Tensor& sum_TH, DecoderBlock* block,
                               const Tensor& positions_T, Attention* attention) {
    ctx->save_for_backward({sum_TH});
    ctx->saved_data["positions"] = positions_T;
    ctx->saved_data["block"] = reinterpret_cast<int64_t>(block);
    ctx->saved_data["attention"] = reinterpret_cast<int64_t>(attention);
    const Stream out = block->forward({sum_TH.clone(), {}}, positions_T, *attention);
    return {out.residual_TH, out.update_TH};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto* block = reinterpret_cast<DecoderBlock*>(ctx->saved_data["block"].toInt());
    auto* attention = reinterpret_cast<Attention*>(ctx->saved_data["attention"].toInt());
    const Tensor sum_TH = ctx->get_saved_variables()[0].detach().requires_grad_();
    at::AutoGradMode grad_mode(true);
    const Stream out =
        block->forward({sum_TH, {}}, ctx->saved_data["positions"].toTensor(), *attention);
    return {
        torch::autograd::grad({out.residual_TH, out.update_TH}, {sum_TH}, {grads[0], grads[1]})[0],
        Tensor(), Tensor(), Tensor()};
  }
};

class Decoder final : public Network {
 public:
  Decoder(const ModelConfig& config, const Precision& precision, const comm::Mesh& mesh,
          const BlockLayers& layers)
      : config_(config), precision_(precision), tp_(mesh.tp()) {
    check(mesh.sizes().pp == 1, "this network is not divided into pipeline stages");
    // Latent attention rotates numbers that lie apart from the others.
    const bool is_latent = config.latent.kv_rank > 0;
    const RotaryHead head{config.rotary_dim, is_latent ? config.rotary_dim : config.head_dim,
                          config.rotates_pairs};
    const auto table = [&](const Rope& rope) {
      return make_rotary_table(rope, head, config.max_positions, precision.device);
    };
    const RotaryTable rotary = table(config.rope);
    const RotaryTable local = config.local_rope ? table(*config.local_rope) : rotary;
    Weights::Builder builder(weights_);
    const std::vector<int64_t> vocabulary{config.vocab_size, config.hidden_size};
    builder.add(embedding_, {{"model.embed_tokens.weight", vocabulary, {}}});
    for (int i = 0; i < static_cast<int>(config.num_layers); ++i) {
      const bool is_local = config.window[static_cast<size_t>(i)] > 0;
      blocks_.push_back(std::make_unique<DecoderBlock>(
          LayerSite{config, i, mesh, is_local ? local : rotary, builder}, layers));
    }
    builder.add(final_norm_, {{"model.norm.weight", {config.hidden_size}, {}}});
    if (!config.ties_embeddings) builder.add(head_, {{"lm_head.weight", vocabulary, {}}});
    builder.allocate(precision);
    for (const auto& block : blocks_) needs_.push_back(block->needs());
    has_chain_ = has_chain(blocks_);
  }

  Tensor forward(const TokenBatch& batch, Attention& attention) override {
    Stream stream{embedded(batch.ids_T), {}};
    if (has_chain_ && attention.chains() != nullptr && !at::GradMode::is_enabled()) {
      stream = chained(blocks_, stream.residual_TH, batch.positions_T, attention, config_.norm_eps);
      return kernels::add_rms_norm(stream.residual_TH, stream.update_TH, final_norm_,
                                   config_.norm_eps)
          .normed_TH;
    }
    for (const auto& block : blocks_) {
      if (recompute_ == Recompute::kFull && at::GradMode::is_enabled()) {
        const Tensor sum_TH =
            stream.update_TH.defined() ? stream.residual_TH + stream.update_TH : stream.residual_TH;
        const variable_list out =
            RecomputedBlock::apply(sum_TH, block.get(), batch.positions_T, &attention);
        stream = {out[0], out[1]};
      } else {
        stream = block->forward(stream, batch.positions_T, attention);
      }
    }
    return kernels::add_rms_norm(stream.residual_TH, stream.update_TH,
                                 norm_weight(final_norm_, config_.norms_add_one), config_.norm_eps)
        .normed_TH;
  }

  const kernels::Param& head() const override {
    return config_.ties_embeddings ? embedding_ : head_;
  }
  const ModelConfig& config() const override { return config_; }
  Weights& weights() override { return weights_; }
  std::span<const BlockNeeds> blocks() const override { return needs_; }
  void set_recompute(Recompute how) override {
    check(how != Recompute::kSelective || tp_.is_alone(),
          "selective recomputation fuses products that tensor-parallel ranks have to sum between");
    recompute_ = how;
    for (const auto& block : blocks_) block->set_selective(how == Recompute::kSelective);
  }

 private:
  Tensor embedded(const Tensor& ids_T) const {
    const Tensor x_TH = kernels::embedding(ids_T, embedding_, precision_.activations);
    if (!config_.scales_embedding) return x_TH;
    // Rounded as the embeddings are: so were the published models trained.
    return x_TH * at::full({}, std::sqrt(static_cast<double>(config_.hidden_size)),
                           at::TensorOptions(x_TH.scalar_type()).device(x_TH.device()));
  }

  ModelConfig config_;
  Precision precision_;
  comm::RankGroup& tp_;
  Recompute recompute_ = Recompute::kNone;
  Weights weights_;
  kernels::Param embedding_;  // [V, H]
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  std::vector<BlockNeeds> needs_;
  bool has_chain_ = false;
  kernels::Param final_norm_;  // [H]
  kernels::Param head_;        // [V, H], undefined when tied
};

}  // namespace

std::unique_ptr<Network> make_decoder(const ModelConfig& config, const Precision& precision,
                                      const comm::Mesh& mesh, const BlockLayers& layers) {
  return std::make_unique<Decoder>(config, precision, mesh, layers);
}

std::unique_ptr<Network> make_dense_decoder(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh) {
  return make_decoder(config, precision, mesh, {make_grouped_query_attention, make_gated_mlp});
}

std::unique_ptr<Network> make_expert_decoder(const ModelConfig& config, const Precision& precision,
                                             const comm::Mesh& mesh) {
  return make_decoder(config, precision, mesh, {make_grouped_query_attention, make_experts_or_mlp});
}

std::unique_ptr<Network> make_latent_decoder(const ModelConfig& config, const Precision& precision,
                                             const comm::Mesh& mesh) {
  return make_decoder(config, precision, mesh, {make_latent_attention, make_experts_or_mlp});
}

}  // namespace slime::model
