#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <vector>

#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "core/error.h"
#include "kernels/adamw.h"
#include "kernels/gpu/gpu.h"
#include "kernels/linear_logprob.h"
#include "kernels/matrix_formats.h"

namespace slime::bench {
namespace {

constexpr int64_t kSequences = 8, kLength = 2048, kTokens = kSequences * kLength;
constexpr int64_t kTrainingElement = 2;  // bytes of a bfloat16

Tensor random_tensor(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) {
  return at::randn(shape, at::TensorOptions(type).device(at::kCUDA));
}

struct TrainingBench {
  const model::ModelConfig& config;
  const KernelLines& lines;
  const kernels::Device& device = kernels::opened_gpu().device();
  const kernels::RotaryShape heads{config.num_heads, config.num_kv_heads, config.head_dim,
                                   config.norm_eps};

  /// Calls that take a tenth of a millisecond or more.
  void time(const std::string& name, const KernelWork& work,
            const std::function<void()>& call) const {
    if (!lines.wants(name)) return;
    lines.write(name, work, launched_seconds(4, [&](int) { call(); }));
  }

  static KernelWork moves(int64_t numbers) {
    return {.bytes = static_cast<double>(numbers * kTrainingElement)};
  }

  void attention() const {
    attention("packed-attention", kLength);
    attention("packed-attention-long", kTokens);
  }

  /// Sequences of `length`; backward as threads arrive, and in one order (--deterministic-mode).
  void attention(const std::string& name, int64_t length) const {
    const std::string of_forward = name + "-forward", of_backward = name + "-backward",
                      of_ordered = name + "-backward-ordered";
    if (!lines.wants(of_forward) && !lines.wants(of_backward) && !lines.wants(of_ordered)) return;
    std::vector<kernels::Segment> segments;
    for (int64_t begin = 0; begin < kTokens; begin += length)
      segments.push_back({begin, begin + length, -1});
    const int64_t out = config.num_heads * config.head_dim;
    const Tensor x = random_tensor({kTokens, out + 2 * config.num_kv_heads * config.head_dim});
    const Tensor dy = random_tensor({kTokens, out});
    const kernels::TreeAttentionShape shape{1 / std::sqrt(static_cast<double>(config.head_dim))};
    Tensor y, logsumexp;
    const double flops = 2.0 * static_cast<double>(kTokens * length * out);
    const auto forward = [&] { y = device.tree_attention(x, segments, heads, shape, logsumexp); };
    forward();
    time(of_forward, {.bytes = 0, .flops = flops}, forward);
    for (const bool is_ordered : {false, true}) {
      kernels::TreeAttentionShape of = shape;
      of.ordered_backward = is_ordered;
      time(is_ordered ? of_ordered : of_backward, {.bytes = 0, .flops = 2.5 * flops},
           [&] { device.tree_attention_backward(dy, y, x, logsumexp, segments, heads, of); });
    }
  }

  void rows() const {
    const int64_t hidden = config.hidden_size, wide = config.intermediate_size;
    const int64_t width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
    const Tensor x = random_tensor({kTokens, hidden}), dy = random_tensor({kTokens, hidden});
    const Tensor dsum = random_tensor({kTokens, hidden}), weight = random_tensor({hidden});
    const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
    Tensor grad = at::zeros({hidden}, floats), sum;
    time("norm-forward", moves(4 * kTokens * hidden),
         [&] { device.add_rms_norm(x, dsum, weight, config.norm_eps, sum); });
    time("norm-backward", moves(4 * kTokens * hidden),
         [&] { device.add_rms_norm_backward(dsum, dy, x, weight, config.norm_eps, grad); });
    const Tensor gate_up = random_tensor({kTokens, 2 * wide}),
                 dproduct = random_tensor({kTokens, wide});
    time("swiglu-forward", moves(3 * kTokens * wide), [&] { device.swiglu(gate_up); });
    time("swiglu-backward", moves(5 * kTokens * wide),
         [&] { device.swiglu_backward(dproduct, gate_up); });
    const Tensor qkv = random_tensor({kTokens, width}), dqkv = random_tensor({kTokens, width});
    const Tensor positions = at::arange(kTokens, floats.dtype(at::kLong)).remainder(kLength);
    const Tensor angle = at::rand({kLength, config.head_dim / 2}, floats) * 6;
    const Tensor cos = angle.cos(), sin = angle.sin();
    Tensor q, k, dq, dk;
    if (config.qk_norm == model::QkNorm::kPerHead) {
      q = random_tensor({config.head_dim});
      k = random_tensor({config.head_dim});
      dq = at::zeros({config.head_dim}, floats);
      dk = at::zeros({config.head_dim}, floats);
    }
    time("rotary-forward", moves(2 * kTokens * width),
         [&] { device.norm_rotate(qkv, positions, q, k, cos, sin, heads); });
    time("rotary-backward", moves(3 * kTokens * width),
         [&] { device.norm_rotate_backward(dqkv, qkv, positions, q, k, cos, sin, heads, dq, dk); });
  }

  /// The widest product of a layer.
  void gradients_of_products() const {
    const int64_t inputs = config.hidden_size, outputs = 2 * config.intermediate_size;
    const Tensor x = random_tensor({kTokens, inputs}), dy = random_tensor({kTokens, outputs});
    const Tensor weight = random_tensor({outputs, inputs});
    Tensor grad = at::zeros({outputs, inputs}, at::TensorOptions(at::kFloat).device(at::kCUDA));
    const KernelWork work{.flops = 2.0 * static_cast<double>(kTokens * inputs * outputs)};
    time("input-gradient", work, [&] { device.linear_input_grad(dy, weight); });
    time("weight-gradient", work, [&] { device.add_linear_weight_grad_(grad, dy, x); });
  }

  /// Of experts [E, O, I] whose outputs end with blocks.
  kernels::Matrix codes_of(const Tensor& weight_EOI) const {
    const kernels::FormatRow& format = kernels::row_of(kernels::MatrixFormat::kFp8Blocks);
    const int64_t experts = weight_EOI.size(0), outputs = weight_EOI.size(1),
                  inputs = weight_EOI.size(2);
    const Tensor plain_OI = weight_EOI.view({experts * outputs, inputs});
    kernels::Matrix codes;
    codes.format = format.format;
    codes.values = at::empty(plain_OI.sizes(), plain_OI.options().dtype(format.code));
    codes.scales = at::empty(
        {experts * kernels::scale_rows(format, outputs), kernels::scale_columns(format, inputs)},
        plain_OI.options().dtype(at::kFloat));
    codes.scale_row_O =
        at::arange(outputs, plain_OI.options().dtype(at::kLong)).div_(format.block_rows, "floor");
    check(outputs % format.block_rows == 0 &&
              device.make_codes(format.format, plain_OI, codes.values, codes.scales),
          "a GPU makes codes of whole blocks");
    codes.values = codes.values.view({experts, outputs, inputs});
    codes.scales = codes.scales.view({experts, -1, codes.scales.size(-1)});
    return codes;
  }

  /// Of a model with experts: gates and ups of all experts of a layer, rows spread evenly, beside
  /// LibTorch's grouped products in the same run.
  void grouped_products() const {
    if (!config.has_experts()) return;
    const int64_t experts = config.experts.count, visits = kTokens * config.experts.per_token;
    const int64_t inputs = config.hidden_size, outputs = 2 * config.experts.width;
    const Tensor x = random_tensor({visits, inputs}), dy = random_tensor({visits, outputs});
    const Tensor weight = random_tensor({experts, outputs, inputs});
    const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
    const Tensor grad = at::zeros({experts, outputs, inputs}, options);
    const Tensor starts =
        at::arange(experts + 1, options.dtype(at::kLong)).mul(visits).div(experts, "floor");
    const kernels::GroupStarts there(starts.to(at::kInt));
    const Tensor ends = there.device_E1.narrow(0, 1, experts);
    const KernelWork work{.flops = 2.0 * static_cast<double>(visits * inputs * outputs)};
    // What is added to is read and written.
    const KernelWork gradient{.bytes = 8.0 * static_cast<double>(grad.numel()),
                              .flops = work.flops};
    time("grouped-forward", work, [&] { device.grouped_linear(x, weight, there); });
    time("grouped-forward-torch", work, [&] { at::_grouped_mm(x, weight.transpose(1, 2), ends); });
    time("grouped-gated", work, [&] { device.grouped_gated_linear(x, weight, there); });
    time("grouped-gated-unfused", work,
         [&] { device.swiglu(device.grouped_linear(x, weight, there)); });
    if (outputs % 128 == 0 && device.has_format(kernels::MatrixFormat::kFp8Blocks)) {
      const kernels::Matrix codes = codes_of(weight);
      time("grouped-codes", work, [&] { device.grouped_linear(x, codes, there); });
      time("grouped-codes-gated", work, [&] { device.grouped_gated_linear(x, codes, there); });
    }
    time("grouped-input-gradient", work, [&] { device.grouped_input_grad(dy, weight, there); });
    time("grouped-input-gradient-torch", work, [&] { at::_grouped_mm(dy, weight, ends); });
    time("grouped-weight-gradient", gradient,
         [&] { device.add_grouped_weight_grad_(grad, dy, x, there); });
    time("grouped-weight-gradient-torch", gradient,
         [&] { grad.add_(at::_grouped_mm(dy.t(), x, ends)); });
  }

  void log_probs() const {
    if (!lines.wants("logprob-forward") && !lines.wants("logprob-backward")) return;
    const int64_t hidden = config.hidden_size, vocab = config.vocab_size;
    kernels::Param head{random_tensor({vocab, hidden}) * 0.02, {}};
    const Tensor target =
        at::randint(vocab, {kTokens}, at::TensorOptions(at::kLong).device(at::kCUDA));
    const double product = 2.0 * static_cast<double>(kTokens * hidden * vocab);
    const Tensor x = random_tensor({kTokens, hidden});
    const double forward = launched_seconds(2, [&](int) {
      const at::NoGradGuard no_grad;
      kernels::linear_logprob(x, head, target, {});
    });
    if (lines.wants("logprob-forward")) lines.write("logprob-forward", {.flops = product}, forward);
    if (!lines.wants("logprob-backward")) return;
    head.grad = at::zeros({vocab, hidden}, at::TensorOptions(at::kFloat).device(at::kCUDA));
    const Tensor row = random_tensor({kTokens}, at::kFloat);
    const double both = launched_seconds(2, [&](int) {
      const at::AutoGradMode with_grad(true);
      const Tensor leaf = x.detach().requires_grad_(true);
      (kernels::linear_logprob(leaf, head, target, {}).logprob_R * row).sum().backward();
    });
    // Two products are counted; a third computes the logits again.
    lines.write("logprob-backward", {.flops = 2 * product}, both - forward);
  }

  void optimizer() const {
    if (!lines.wants("adamw") && !lines.wants("gradient-norm")) return;
    constexpr int64_t kWeights = int64_t{1} << 30;
    const Tensor weights =
        at::empty({kWeights}, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
    const Tensor master = random_tensor({kWeights}, at::kFloat),
                 grad = random_tensor({kWeights}, at::kFloat);
    const Tensor first = at::zeros_like(master), second = at::zeros_like(master);
    const std::vector<kernels::AdamRange> ranges = {{0, kWeights, true}};
    // Master, moments and gradient are read; weights, master and moments written.
    time("adamw", {.bytes = 30.0 * kWeights},
         [&] { kernels::adamw_(weights, master, first, second, grad, ranges, {.lr = 1e-6}); });
    time("gradient-norm", {.bytes = 4.0 * kWeights}, [&] { kernels::sum_of_squares(grad); });
  }
};

}  // namespace

void measure_training_kernels(const model::ModelConfig& config, const KernelLines& lines) {
  const TrainingBench bench{config, lines};
  {
    const at::NoGradGuard no_grad;
    bench.attention();
    bench.rows();
    bench.gradients_of_products();
    bench.grouped_products();
    bench.optimizer();
  }
  bench.log_probs();
}

}  // namespace slime::bench
