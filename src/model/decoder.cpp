#include "model/decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/device.h"
#include "kernels/rms_norm.h"
#include "model/adapters.h"
#include "model/layers/block_chain.h"
#include "model/layers/decoder_block.h"
#include "model/layers/draft_layer.h"
#include "model/layers/expert_layer.h"
#include "model/layers/gated_delta_net.h"
#include "model/layers/gated_mlp.h"
#include "model/layers/grouped_query_attention.h"
#include "model/layers/latent_attention.h"
#include "model/layers/media_rows.h"
#include "model/layers/norm_weight.h"
#include "model/layers/tensor_parallel.h"
#include "model/layers/vocabulary_parallel.h"
#include "model/pipeline_layers.h"
#include "model/router_pass.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A choice of tokens does not travel between pipeline stages.
void check_choices(const IndexerConfig& indexer, int64_t first_layer) {
  if (indexer.in_layer.empty() || indexer.in_layer[static_cast<size_t>(first_layer)]) return;
  throw ConfigError(fmt::format(
      "layer {} takes the tokens that the indexer of a layer before it chose, and would begin a "
      "range of a pipeline stage: cut stages where layers have an indexer of their own",
      first_layer));
}

/// A block that keeps only its input and runs again in the backward. The parameters' gradients are
/// added by the kernels of that second run.
struct RecomputedBlock : torch::autograd::Function<RecomputedBlock> {
  static variable_list forward(AutogradContext* ctx, const Tensor& sum_TH, DecoderBlock* block,
                               const Tensor& positions_T, Attention* attention,
                               RouterPass* routers) {
    ctx->save_for_backward({sum_TH});
    ctx->saved_data["positions"] = positions_T;
    ctx->saved_data["block"] = reinterpret_cast<int64_t>(block);
    ctx->saved_data["attention"] = reinterpret_cast<int64_t>(attention);
    ctx->saved_data["routers"] = reinterpret_cast<int64_t>(routers);
    ctx->saved_data["arithmetic"] = static_cast<int64_t>(kernels::kernels_for(sum_TH).arithmetic());
    const Stream out = block->forward({sum_TH.clone(), {}}, positions_T, *attention, routers);
    return {out.residual_TH, out.update_TH};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto* block = reinterpret_cast<DecoderBlock*>(ctx->saved_data["block"].toInt());
    auto* attention = reinterpret_cast<Attention*>(ctx->saved_data["attention"].toInt());
    auto* routers = reinterpret_cast<RouterPass*>(ctx->saved_data["routers"].toInt());
    const Tensor sum_TH = ctx->get_saved_variables()[0].detach().requires_grad_();
    // Of the thread that went forward.
    const kernels::ArithmeticScope scope(
        kernels::kernels_for(sum_TH),
        static_cast<kernels::Arithmetic>(ctx->saved_data["arithmetic"].toInt()));
    at::AutoGradMode grad_mode(true);
    const Stream out =
        block->forward({sum_TH, {}}, ctx->saved_data["positions"].toTensor(), *attention, routers);
    return {
        torch::autograd::grad({out.residual_TH, out.update_TH}, {sum_TH}, {grads[0], grads[1]})[0],
        Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

/// The stream as it is. Its backward comes when the layers behind it are done with their gradients.
struct TellBackward : torch::autograd::Function<TellBackward> {
  static variable_list forward(AutogradContext* ctx, const Tensor& residual_LH,
                               const Tensor& update_LH, const std::function<void(int64_t)>* tell,
                               int64_t begin) {
    ctx->saved_data["tell"] = reinterpret_cast<int64_t>(tell);
    ctx->saved_data["begin"] = begin;
    return {residual_LH.view_as(residual_LH), update_LH.view_as(update_LH)};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto* tell =
        reinterpret_cast<const std::function<void(int64_t)>*>(ctx->saved_data["tell"].toInt());
    (*tell)(ctx->saved_data["begin"].toInt());
    return {grads[0], grads[1], Tensor(), Tensor()};
  }
};

/// One class because its members are one rank's part of the model: which ranges of layers, ids and rows.
class Decoder final : public Network {
 public:
  Decoder(const ModelConfig& config, const Precision& precision, const comm::Mesh& mesh,
          const BlockLayers& layers)
      : config_(config),
        precision_(precision),
        tp_(mesh),
        vocabulary_(vocabulary_slice(mesh, config.vocab_size)) {
    const comm::ParallelLayout& sizes = mesh.sizes();
    is_first_stage_ = mesh.at().pp == 0;
    is_last_stage_ = mesh.at().pp + 1 == sizes.pp;
    // Latent attention rotates numbers that lie apart from the others.
    const bool is_latent = config.latent.kv_rank > 0;
    const RotaryHead head{config.rotary_dim, is_latent ? config.rotary_dim : config.head_dim,
                          config.rotates_pairs};
    const auto table = [&](const Rope& rope) {
      return make_rotary_table(rope, head, config.max_positions, config.rotary_switch() > 0,
                               precision.device);
    };
    const RotaryTable rotary = table(config.rope);
    const RotaryTable local = config.local_rope ? table(*config.local_rope) : rotary;
    Weights::Builder builder(weights_);
    const std::vector<int64_t> vocabulary{config.vocab_size, config.hidden_size};
    const int64_t room_rows = divide_up(config.vocab_size, int64_t{sizes.tp});
    if (is_first_stage_ || (is_last_stage_ && config.ties_embeddings)) {
      builder.add(embedding_, {{.name = config.tensor_prefix + "embed_tokens.weight",
                                .full_shape = vocabulary,
                                .slices = vocabulary_,
                                .is_on_two_stages = config.ties_embeddings && sizes.pp > 1,
                                .room_rows = room_rows}});
    }
    for (const LayerRange& range : layers_of_stage(sizes, mesh.at().pp, config.num_layers)) {
      chunks_.emplace_back();
      check_choices(config.indexer, range.begin);
      for (int64_t i = range.begin; i < range.end; ++i) {
        first_weights_.push_back(weights_.tensors().size());
        const bool is_local = config.window[static_cast<size_t>(i)] > 0;
        chunks_.back().push_back(std::make_unique<DecoderBlock>(
            LayerSite{config, static_cast<int>(i), mesh, is_local ? local : rotary, builder},
            layers));
      }
    }
    if (is_last_stage_) {
      builder.add(
          final_norm_,
          {{config.tensor_prefix + "norm.weight", {config.hidden_size}, {}, tp_.cuts_rows}});
      if (config.ties_embeddings) {
        builder.add_tied(head_, embedding_);
      } else {
        builder.add_plain(head_, {{.name = "lm_head.weight",
                                   .full_shape = vocabulary,
                                   .slices = vocabulary_,
                                   .room_rows = room_rows}});
      }
    }
    for (int64_t i = 0; i < config.drafts.computed; ++i)
      drafts_.push_back(std::make_unique<DraftLayer>(config, i, mesh, rotary, builder, layers));
    builder.allocate(precision);
    for (const auto& blocks : chunks_) {
      for (const auto& block : blocks) needs_.push_back(block->needs());
    }
    for (const auto& draft : drafts_) needs_.push_back(draft->needs());
    // Its kernels have the norms' weights as files do.
    const auto may_chain = [&](Blocks blocks) {
      return sizes.pp == 1 && !config.norms_add_one && has_chain(blocks, tp_);
    };
    has_chain_ = may_chain(chunks_.front());
    drafts_have_chain_ = !drafts_.empty() && may_chain(drafts_.front()->block());
    rank_collectives_ = rank_collectives_of(tp_);
  }

  Tensor forward(const TokenBatch& batch, Attention& attention) override {
    check(is_first_stage_ && is_last_stage_ && chunks_.size() == 1,
          "a pipeline stage computes one of its ranges of layers");
    return forward_chunk(0, {}, batch, attention);
  }

  Tensor forward_chunk(int chunk, const Tensor& stream_TH, const TokenBatch& batch,
                       Attention& attention) override {
    const Blocks blocks = chunks_[static_cast<size_t>(chunk)];
    if (adapters() != nullptr) adapters()->begin(batch);
    const bool is_first = is_first_stage_ && chunk == 0;
    const bool is_last = is_last_stage_ && static_cast<size_t>(chunk) + 1 == chunks_.size();
    check(batch.captured == nullptr || (is_first && is_last && !at::GradMode::is_enabled() &&
                                        !batch.wanted_R.defined() && !tp_.cuts_rows),
          "hidden states are captured of all rows of a whole model, without gradients");
    const bool wants_some = is_last && batch.wanted_R.defined();
    check(!wants_some || (!at::GradMode::is_enabled() && !tp_.cuts_rows),
          "some rows alone are wanted without gradients and where a rank has all of them");
    // Of rows with several adapters no part alone goes through a layer.
    const bool has_several = adapters() != nullptr && adapters()->chooses_by_row();
    const bool picks_last = wants_some && (batch.routers != nullptr || has_several);
    Stream stream = computed(blocks, has_chain_, is_first ? embeddings(batch) : stream_TH, batch,
                             attention, wants_some && !picks_last);
    if (picks_last) stream = stream.rows(batch.wanted_R);
    return is_last ? normed(stream, final_norm_, batch) : sum_of(stream);
  }

  int64_t num_draft_layers() const override { return static_cast<int64_t>(drafts_.size()); }
  Tensor draft(int64_t layer, const Tensor& hidden_TH, const TokenBatch& batch,
               Attention& attention) override {
    check(batch.routers == nullptr, "choices of experts are those of the other layers");
    check(hidden_TH.size(0) == batch.num_tokens(), "each hidden state has a token behind it");
    const DraftLayer& draft = *drafts_.at(static_cast<size_t>(layer));
    if (adapters() != nullptr) adapters()->begin(batch);
    const bool wants_some = batch.wanted_R.defined();
    const bool picks_last = wants_some && adapters() != nullptr && adapters()->chooses_by_row();
    Tensor embedding_TH;
    {
      const at::NoGradGuard no_grad;  // the embedding is the trunk's
      embedding_TH = embeddings(batch);
    }
    // Gradients of the layer's own weights need inputs that have some.
    const auto leaf = [](const Tensor& x) {
      return at::GradMode::is_enabled() ? x.detach().requires_grad_() : x;
    };
    Stream stream = computed(draft.block(), drafts_have_chain_,
                             draft.joined(leaf(hidden_TH), leaf(embedding_TH)), batch, attention,
                             wants_some && !picks_last);
    if (picks_last) stream = stream.rows(batch.wanted_R);
    return normed(stream, draft.last_norm(), batch);
  }

  Tensor embedded(const TokenBatch& batch) const override {
    const at::NoGradGuard no_grad;
    return with_media(
        model::embedded(batch.ids_T, embedding_, vocabulary_, precision_.activations, tp_), batch,
        tp_);
  }

  Tensor empty_stream(int64_t num_tokens) const override {
    const int64_t rows =
        tp_.cuts_rows ? divide_up(num_tokens, int64_t{tp_.ranks.size()}) : num_tokens;
    return at::empty({rows, config_.hidden_size},
                     weights_.flat().options().dtype(precision_.activations));
  }

  const kernels::MatrixParam& head() const override { return head_; }
  kernels::LogProbs log_probs(const Tensor& hidden_RH, const Tensor& target_R,
                              const kernels::LinearLogProbOptions& options) const override {
    kernels::LinearLogProbOptions capped = options;
    capped.cap = config_.logit_cap;
    return model::log_probs(hidden_RH, head(), vocabulary_, target_R, capped, tp_);
  }
  kernels::LogProbs draft_log_probs(const Tensor& hidden_RH,
                                    const Tensor& target_R) const override {
    kernels::MatrixParam still = head();
    still.grad = Tensor();
    return model::log_probs(hidden_RH, still, vocabulary_, target_R, {.cap = config_.logit_cap},
                            tp_);
  }
  Tensor logits(const Tensor& hidden_RH) const override {
    return model::logits(hidden_RH, head(), vocabulary_, config_.vocab_size, config_.logit_cap,
                         tp_);
  }
  MediaSource* media_source() override { return media_source_.get(); }
  void set_media_source(std::unique_ptr<MediaSource> source) override {
    media_source_ = std::move(source);
  }
  const ModelConfig& config() const override { return config_; }
  Weights& weights() override { return weights_; }
  std::span<const BlockNeeds> blocks() const override { return needs_; }
  void set_recompute(Recompute how) override {
    check(how != Recompute::kSelective || tp_.is_alone(),
          "selective recomputation fuses products that tensor-parallel ranks have to sum between");
    recompute_ = how;
    for (const auto& blocks : chunks_) {
      for (const auto& block : blocks) block->set_selective(how == Recompute::kSelective);
    }
  }

  void on_gradients(std::function<void(int64_t)> tell) override {
    tell_ = chunks_.size() == 1 ? std::move(tell) : nullptr;
  }
  std::vector<int64_t> gradient_marks() const override {
    std::vector<int64_t> marks;
    for (size_t i = chunks_.front().size(); chunks_.size() == 1 && i-- > 1;)
      marks.push_back(begin_of_block(i));
    return marks;
  }

 private:
  /// `blocks` of `input_TH`, as one chain where they and the pass have one.
  Stream computed(Blocks blocks, bool has_chain, const Tensor& input_TH, const TokenBatch& batch,
                  Attention& attention, bool wants_some) const {
    if (has_chain && attention.chains() != nullptr && !at::GradMode::is_enabled() &&
        is_free(batch.routers) && batch.captured == nullptr) {
      return chained(blocks, input_TH, batch, attention, wants_some, config_.norm_eps,
                     {.sum = rank_collectives_.get(), .adds_biases = tp_.ranks.rank() == 0});
    }
    return through(blocks, {input_TH, {}}, batch, attention, wants_some);
  }

  /// The norm behind the last block: of the wanted rows, or of all rows of all ranks.
  Tensor normed(const Stream& stream, const kernels::Param& norm, const TokenBatch& batch) const {
    const bool wants_some = batch.wanted_R.defined();
    if (wants_some && stream.residual_TH.size(0) == 0) return stream.residual_TH;
    const Tensor normed_LH =
        kernels::add_rms_norm(stream.residual_TH, stream.update_TH,
                              norm_weight(norm, config_.norms_add_one), config_.norm_eps)
            .normed_TH;
    return wants_some ? normed_LH : all_rows(normed_LH, batch.rotary_row_T.size(0), tp_);
  }

  /// Block by block. Of the wanted rows alone where nobody records what routers do with the others.
  Stream through(Blocks blocks, Stream stream, const TokenBatch& batch, Attention& attention,
                 bool wants_some) const {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& block = blocks[i];
      capture(batch, i, stream);
      if (tell_ && i > 0 && at::GradMode::is_enabled()) {
        const variable_list out =
            TellBackward::apply(stream.residual_TH, stream.update_TH, &tell_, begin_of_block(i));
        stream = {out[0], out[1]};
      }
      if (recompute_ == Recompute::kFull && at::GradMode::is_enabled()) {
        const variable_list out = RecomputedBlock::apply(
            sum_of(stream), block.get(), batch.rotary_row_T, &attention, batch.routers);
        stream = {out[0], out[1]};
      } else if (wants_some && i + 1 == blocks.size() && batch.routers == nullptr) {
        stream = block->forward_of_rows(batch.wanted_R, stream, batch.rotary_row_T, attention);
      } else {
        stream = block->forward(stream, batch.rotary_row_T, attention, batch.routers);
      }
    }
    capture(batch, blocks.size(), stream);
    return stream;
  }

  /// What enters block `i`, where the batch wants it: a sum of its own, since blocks write into the residual.
  static void capture(const TokenBatch& batch, size_t i, const Stream& stream) {
    if (batch.captured == nullptr) return;
    HiddenCapture& captured = *batch.captured;
    const auto at = std::ranges::find(captured.layers, static_cast<int64_t>(i));
    if (at == captured.layers.end()) return;
    const int64_t width = stream.residual_TH.size(1), wanted = std::ssize(captured.layers);
    if (at == captured.layers.begin())
      captured.hidden_TC =
          at::empty({stream.residual_TH.size(0), wanted * width}, stream.residual_TH.options());
    captured.hidden_TC.narrow(1, (at - captured.layers.begin()) * width, width)
        .copy_(sum_of(stream));
  }

  /// In the flat buffer, of the only range's.
  int64_t begin_of_block(size_t i) const { return weights_.tensors()[first_weights_[i]].offset; }

  static Tensor sum_of(const Stream& stream) {
    return stream.update_TH.defined() ? stream.residual_TH + stream.update_TH : stream.residual_TH;
  }

  Tensor embeddings(const TokenBatch& batch) const {
    return with_media(
        scaled(model::embedded(batch.ids_T, embedding_, vocabulary_, precision_.activations, tp_)),
        batch, tp_);
  }

  Tensor scaled(const Tensor& x_LH) const {
    if (!config_.scales_embedding) return x_LH;
    // Rounded as the embeddings are: so were the published models trained.
    return x_LH * at::full({}, std::sqrt(static_cast<double>(config_.hidden_size)),
                           at::TensorOptions(x_LH.scalar_type()).device(x_LH.device()));
  }

  ModelConfig config_;
  Precision precision_;
  TensorParallel tp_;
  Slice vocabulary_;  // this rank's ids
  bool is_first_stage_ = true;
  bool is_last_stage_ = true;
  Recompute recompute_ = Recompute::kNone;
  Weights weights_;
  std::unique_ptr<MediaSource> media_source_;
  kernels::Param embedding_;  // [V, H], undefined on stages that need none
  std::vector<std::vector<std::unique_ptr<DecoderBlock>>> chunks_;  // of this stage
  std::vector<std::unique_ptr<DraftLayer>> drafts_;
  std::vector<BlockNeeds> needs_;
  std::vector<size_t> first_weights_;  // of each block: its index among the weights
  std::function<void(int64_t)> tell_;  // see on_gradients()
  bool has_chain_ = false;
  bool drafts_have_chain_ = false;
  std::unique_ptr<kernels::RankCollectives> rank_collectives_;  // null: one tensor-parallel rank
  kernels::Param final_norm_;                                   // [H], of the last stage
  kernels::MatrixParam head_;  // [V, H], of the last stage; tied: the embedding
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

std::unique_ptr<Network> make_delta_decoder(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh) {
  return make_decoder(config, precision, mesh, {make_delta_net_or_attention, make_experts_or_mlp});
}

std::unique_ptr<Network> make_latent_decoder(const ModelConfig& config, const Precision& precision,
                                             const comm::Mesh& mesh) {
  return make_decoder(config, precision, mesh, {make_latent_attention, make_experts_or_mlp});
}

}  // namespace slime::model
