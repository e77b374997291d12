#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "bench/workload.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "model/network.h"

namespace slime::bench {
namespace {

/// Layers that are nothing but attention, always over the same projections: what an engine's step
/// takes longer with more of them is attention, norms and rotation of heads and the writing of keys
/// and values, planned and recorded as in every step.
class AttentionAlone final : public model::Network {
 public:
  AttentionAlone(const model::ModelConfig& shape, int64_t num_layers, int64_t max_rows)
      : inner_(
            model::make_uniform_network(small(shape), model::Precision::on_gpu("bfloat16"), 0.1)),
        config_(inner_->config()) {
    config_.num_layers = num_layers;
    needs_.assign(static_cast<std::size_t>(num_layers), inner_->blocks().front());
    const auto options = inner_->weights().flat().options();
    const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
    qkv_TE_ = at::randn({max_rows, width}, options);
    hidden_TH_ = at::randn({max_rows, config_.hidden_size}, options);
    layer_.num_heads = shape.num_heads;
    layer_.num_kv_heads = shape.num_kv_heads;
    layer_.head_dim = shape.head_dim;
    layer_.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    layer_.norm_eps = shape.norm_eps;
    if (shape.qk_norm == model::QkNorm::kPerHead) {
      layer_.q_norm.value = at::ones({shape.head_dim}, options);
      layer_.k_norm.value = at::ones({shape.head_dim}, options);
    }
    const Tensor angle_PR =
        at::rand({config_.max_positions, shape.head_dim / 2}, options.dtype(at::kFloat)) * 6;
    layer_.cos_PR = angle_PR.cos();
    layer_.sin_PR = angle_PR.sin();
  }

  Tensor forward(const model::TokenBatch& batch, model::Attention& attention) override {
    const int64_t rows = batch.num_tokens();
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      layer_.index = static_cast<int>(layer);
      attention.attend(layer_, qkv_TE_.narrow(0, 0, rows), batch.rotary_row_T);
    }
    return hidden_TH_.narrow(0, 0, rows);
  }
  Tensor forward_chunk(int, const Tensor&, const model::TokenBatch& batch,
                       model::Attention& attention) override {
    return forward(batch, attention);
  }
  Tensor empty_stream(int64_t num_tokens) const override {
    return inner_->empty_stream(num_tokens);
  }
  const kernels::MatrixParam& head() const override { return inner_->head(); }
  kernels::LogProbs log_probs(const Tensor& hidden_RH, const Tensor& target_R,
                              const kernels::LinearLogProbOptions& options) const override {
    return inner_->log_probs(hidden_RH, target_R, options);
  }
  Tensor logits(const Tensor& hidden_RH) const override { return inner_->logits(hidden_RH); }
  model::MediaSource* media_source() override { return inner_->media_source(); }
  void set_media_source(std::unique_ptr<model::MediaSource> source) override {
    inner_->set_media_source(std::move(source));
  }
  const model::ModelConfig& config() const override { return config_; }
  model::Weights& weights() override { return inner_->weights(); }
  std::span<const model::BlockNeeds> blocks() const override { return needs_; }
  void set_recompute(model::Recompute how) override { inner_->set_recompute(how); }
  void on_gradients(std::function<void(int64_t)> tell) override {
    inner_->on_gradients(std::move(tell));
  }
  std::vector<int64_t> gradient_marks() const override { return inner_->gradient_marks(); }

 private:
  /// One layer of little width and few tokens: a step's fixed cost is small.
  static model::ModelConfig small(model::ModelConfig shape) {
    shape.num_layers = 1;
    shape.hidden_size = 256;
    shape.intermediate_size = 256;
    shape.vocab_size = 150'000;  // prompts are sampled from so many
    shape.window.assign(1, 0);
    return shape;
  }

  std::unique_ptr<model::Network> inner_;
  model::ModelConfig config_;
  std::vector<model::BlockNeeds> needs_;
  model::AttentionLayer layer_;
  Tensor qkv_TE_, hidden_TH_;
};

constexpr int64_t kFewLayers = 4, kMoreLayers = 36;
constexpr int64_t kChunk = 8192;

/// Seconds of one layer of attention in a step of the workload.
double layer_seconds(const model::ModelConfig& config, const Workload& workload,
                     const kernels::GpuLimits& limits) {
  const SystemClock clock;
  double seconds[2] = {};
  for (const int64_t layers : {kFewLayers, kMoreLayers}) {
    AttentionAlone network(config, layers, kChunk + 512);
    engine::EngineConfig settings;
    settings.max_running_requests = 256;
    settings.max_prefill_tokens = kChunk;
    settings.context_length = kChunk + 64;
    settings.kv_cache_bytes = int64_t{48} << 30;
    engine::Engine engine(network, settings, clock);
    const json::object line = run_workload(engine, network, workload, limits, 3, true, clock);
    double best = 1e300;
    for (const json::value& one : line.at("seconds").as_array())
      best = std::min(best, one.to_number<double>());
    seconds[layers == kMoreLayers ? 1 : 0] = best;
  }
  return (seconds[1] - seconds[0]) / static_cast<double>(kMoreLayers - kFewLayers);
}

}  // namespace

void measure_paged_attention(const model::ModelConfig& config, const KernelLines& lines) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kContext = 1024, kBrief = 16, kFull = 112;
  const int64_t width = config.num_kv_heads * config.head_dim;
  const int64_t heads = config.num_heads * config.head_dim;
  for (const int64_t batch : {1, 32, 256}) {
    const std::string name = fmt::format("decode-attention-b{}", batch);
    if (!lines.wants(name)) continue;
    Workload workload{.id = name, .model = "", .kind = Workload::Kind::kDecode};
    const auto count = static_cast<std::size_t>(batch);
    workload.prompt_lengths.assign(count, kContext - (kBrief + kFull) / 2);
    workload.output_lengths.assign(count, kFull);
    workload.short_output_length = kBrief;
    // Keys and values in bfloat16.
    lines.write(name,
                {.bytes = static_cast<double>(batch * kContext * 2 * width * 2),
                 .flops = 4.0 * static_cast<double>(batch * kContext * heads)},
                layer_seconds(config, workload, lines.limits));
  }
  if (lines.wants("prompt-attention")) {
    Workload workload{.id = "prompt-attention", .model = "", .kind = Workload::Kind::kPrefill};
    workload.prompt_lengths = {kChunk};
    workload.output_lengths = {1};
    // Causal: half of the keys on the mean.
    lines.write("prompt-attention",
                {.bytes = static_cast<double>(kChunk * (2 * heads + 4 * width) * 2),
                 .flops = 2.0 * static_cast<double>(kChunk * kChunk * heads)},
                layer_seconds(config, workload, lines.limits));
  }
}

}  // namespace slime::bench
