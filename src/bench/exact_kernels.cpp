/// Training arithmetic next to the kernels of other runs, in one process: what equal bits cost.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

using kernels::Arithmetic;

constexpr int64_t kExactElement = 2;  // bytes of a bfloat16
constexpr int64_t kExactSequences = 8, kExactLength = 2048;

Tensor random_bfloat16(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
}

struct ExactBench {
  const model::ModelConfig& config;
  const KernelLines& lines;
  const kernels::Device& device = kernels::opened_gpu().device();

  /// A line of each arithmetic.
  template <typename Time>
  void both(const std::string& name, const KernelWork& work, const Time& time) const {
    for (const auto& [word, arithmetic] :
         {std::pair{"fast", Arithmetic::kFast}, {"exact", Arithmetic::kTraining}}) {
      const std::string full = fmt::format("{}-{}", word, name);
      if (!lines.wants(full)) continue;
      const kernels::ArithmeticScope scope(device, arithmetic);
      lines.write(full, work, time(arithmetic));
    }
  }

  void product(const char* what, int64_t rows, int64_t outputs, int64_t inputs,
               bool has_float_result) const {
    const double result = has_float_result ? 4 : kExactElement;
    const KernelWork work{.bytes = static_cast<double>(kExactElement * inputs * (outputs + rows)) +
                                   result * static_cast<double>(rows * outputs),
                          .flops = 2.0 * static_cast<double>(rows * outputs * inputs)};
    both(fmt::format("product-{}-r{}", what, rows), work, [&](Arithmetic) {
      const int count = num_cold_copies(outputs * inputs * kExactElement);
      std::vector<Tensor> weights;
      for (int i = 0; i < count; ++i) weights.push_back(random_bfloat16({outputs, inputs}));
      const Tensor x = random_bfloat16({rows, inputs});
      return recorded_seconds(count, [&](int i) {
        const Tensor& weight = weights[static_cast<std::size_t>(i)];
        has_float_result ? device.logits(x, weight) : device.linear(x, weight, {});
      });
    });
  }

  void products() const {
    const int64_t heads = config.num_heads * config.head_dim, hidden = config.hidden_size,
                  wide = config.intermediate_size;
    for (const int64_t rows : {1, 64, 256, 1000, 2048, 8192}) {
      product("qkv", rows, heads + 2 * config.num_kv_heads * config.head_dim, hidden, false);
      product("output", rows, hidden, heads, false);
      product("gate_up", rows, 2 * wide, hidden, false);
      product("down", rows, hidden, wide, false);
      if (rows <= 2048) product("head", rows, config.vocab_size, hidden, true);
    }
  }

  /// The trainer's: of sequences, and of a prompt that samples share.
  void attention() const {
    const kernels::RotaryShape heads{config.num_heads, config.num_kv_heads, config.head_dim,
                                     config.norm_eps};
    const int64_t out = config.num_heads * config.head_dim;
    const int64_t tokens = kExactSequences * kExactLength;
    const kernels::TreeAttentionShape shape{1 / std::sqrt(static_cast<double>(config.head_dim))};
    std::vector<kernels::Segment> apart, shared{{0, kExactLength, -1}};
    for (int64_t i = 0; i < kExactSequences; ++i)
      apart.push_back({i * kExactLength, (i + 1) * kExactLength, -1});
    for (int64_t i = 1; i < kExactSequences; ++i)
      shared.push_back({i * kExactLength, (i + 1) * kExactLength, 0});
    const double pairs = static_cast<double>(tokens * kExactLength) / 2;
    const double more = static_cast<double>((kExactSequences - 1) * kExactLength * kExactLength);
    const auto line = [&](const char* what, const std::vector<kernels::Segment>& segments,
                          double num_pairs) {
      both(what, {.flops = 4.0 * num_pairs * static_cast<double>(out)}, [&](Arithmetic arithmetic) {
        const Tensor x = random_bfloat16({tokens, out + 2 * config.num_kv_heads * config.head_dim});
        Tensor logsumexp;
        return launched_seconds(4, [&](int) {
          arithmetic == Arithmetic::kFast
              ? device.tree_attention(x, segments, heads, shape, logsumexp)
              : device.tree_attention_in_pages(x, segments, heads, shape, {}, logsumexp);
        });
      });
    };
    line("attention-forward", apart, pairs);
    line("attention-forward-shared", shared, pairs + more);
  }
};

}  // namespace

void measure_exact_kernels(const model::ModelConfig& config, const KernelLines& lines) {
  const at::NoGradGuard no_grad;
  const ExactBench bench{config, lines};
  if (!lines.only.empty()) bench.products();  // minutes
  if (kernels::opened_gpu().has_exact_attention(
          {config.num_heads, config.num_kv_heads, config.head_dim, 0}, at::kBFloat16))
    bench.attention();
}

}  // namespace slime::bench
