#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "core/json_lines.h"
#include "kernels/block_chain.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

constexpr std::array kRows = {1, 32, 256, 8192};
constexpr int64_t kStepElement = 2;  // bytes of a bfloat16

Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
}

std::vector<Tensor> copies(int count, at::IntArrayRef shape) {
  std::vector<Tensor> made;
  for (int i = 0; i < count; ++i) made.push_back(random(shape));
  return made;
}

struct StepBench {
  const model::ModelConfig& config;
  const KernelLines& lines;
  const kernels::Device& device = kernels::opened_gpu().device();

  /// y = x W^T for weights that no cache holds, as in the layers of a step.
  void product(const char* what, int64_t rows, int64_t outputs, int64_t inputs,
               bool has_float_result) const {
    const std::string name = fmt::format("product-{}-r{}", what, rows);
    if (!lines.wants(name)) return;
    const int count = num_cold_copies(outputs * inputs * kStepElement);
    const std::vector<Tensor> weights = copies(count, {outputs, inputs});
    const Tensor x = random({rows, inputs});
    const double seconds = recorded_seconds(count, [&](int i) {
      if (has_float_result) {
        device.logits(x, weights[static_cast<std::size_t>(i)]);
      } else {
        device.linear(x, weights[static_cast<std::size_t>(i)], {});
      }
    });
    const auto result = static_cast<double>(has_float_result ? 4 : kStepElement);
    lines.write(name,
                {.bytes = static_cast<double>(kStepElement * inputs * (outputs + rows)) +
                          result * static_cast<double>(rows * outputs),
                 .flops = 2.0 * static_cast<double>(rows * outputs * inputs)},
                seconds);
  }

  /// Each kernel that could compute a product, and which of them have the bits that results have.
  void candidates(const char* what, int64_t rows, int64_t outputs, int64_t inputs,
                  bool has_float_result) const {
    const std::string name = fmt::format("candidates-{}-r{}", what, rows);
    if (!lines.wants(name)) return;
    json::array found;
    for (const auto& one : kernels::opened_gpu().product_candidates(
             random({rows, inputs}), random({outputs, inputs}), has_float_result))
      found.push_back(json::object{{"kernel", one.name},
                                   {"microseconds", one.microseconds},
                                   {"has_ruling_bits", one.has_ruling_bits}});
    write_json_line({{"kernel", name}, {"candidates", found}});
  }

  void all_candidates() const {
    const int64_t heads = config.num_heads * config.head_dim;
    for (const int64_t rows : {1, 2, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024}) {
      candidates("qkv", rows, heads + 2 * config.num_kv_heads * config.head_dim, config.hidden_size,
                 false);
      candidates("output", rows, config.hidden_size, heads, false);
      candidates("gate_up", rows, 2 * config.intermediate_size, config.hidden_size, false);
      candidates("down", rows, config.hidden_size, config.intermediate_size, false);
      candidates("head", rows, config.vocab_size, config.hidden_size, true);
    }
  }

  void products() const {
    const int64_t heads = config.num_heads * config.head_dim;
    for (const int64_t rows : kRows) {
      product("qkv", rows, heads + 2 * config.num_kv_heads * config.head_dim, config.hidden_size,
              false);
      product("output", rows, config.hidden_size, heads, false);
      product("gate_up", rows, 2 * config.intermediate_size, config.hidden_size, false);
      product("down", rows, config.hidden_size, config.intermediate_size, false);
      if (rows <= 256) product("head", rows, config.vocab_size, config.hidden_size, true);
    }
  }

  /// Gate and up of prompts with SwiGLU: in one kernel, and as product and activation.
  void gated_product(int64_t rows) const {
    const int64_t inputs = config.hidden_size, wide = config.intermediate_size;
    const KernelWork work{
        .bytes = static_cast<double>(kStepElement * (inputs * (2 * wide + rows) + rows * wide)),
        .flops = 4.0 * static_cast<double>(rows * wide * inputs)};
    const auto time = [&](const char* what, const auto& call) {
      const std::string name = fmt::format("{}-r{}", what, rows);
      if (!lines.wants(name)) return;
      const int count = num_cold_copies(2 * wide * inputs * kStepElement);
      const std::vector<Tensor> weights = copies(count, {2 * wide, inputs});
      const Tensor x = random({rows, inputs});
      const double seconds =
          recorded_seconds(count, [&](int i) { call(x, weights[static_cast<std::size_t>(i)]); });
      lines.write(name, work, seconds);
    };
    time("gated-product",
         [&](const Tensor& x, const Tensor& weight) { device.gated_linear(x, weight, {}); });
    time("gated-product-unfused", [&](const Tensor& x, const Tensor& weight) {
      device.swiglu(device.linear(x, weight, {}));
    });
  }

  /// What lies between the attentions of two blocks: products, norms, activation.
  void block_chain(int64_t rows) const {
    const std::string name = fmt::format("block-chain-r{}", rows);
    if (!lines.wants(name)) return;
    const int64_t hidden = config.hidden_size, wide = config.intermediate_size,
                  attended = config.num_heads * config.head_dim,
                  heads = attended + 2 * config.num_kv_heads * config.head_dim;
    const int64_t weights = hidden * (attended + 3 * wide + heads);
    // Weights so small that activations stay finite from one to the next.
    const auto matrix = [](int64_t outputs, int64_t inputs) {
      return random({outputs, inputs}).mul_(0.01);
    };
    const Tensor residual = random({rows, hidden}), norm = random({hidden});
    std::vector<kernels::BlockChain> blocks(
        static_cast<std::size_t>(std::max(8, num_cold_copies(weights * kStepElement))));
    for (kernels::BlockChain& block : blocks) {
      block.attended_TC = random({rows, attended});
      block.residual_TH = residual;
      block.output_HC = matrix(hidden, attended);
      block.post_norm_H = block.next_norm_H = norm;
      block.gate_up_2FH = matrix(2 * wide, hidden);
      block.down_HF = matrix(hidden, wide);
      block.next_qkv_EH = matrix(heads, hidden);
      block.eps = config.norm_eps;
    }
    const kernels::BlockChains* chains = kernels::block_chains_for(residual);
    const double seconds = recorded_seconds(static_cast<int>(blocks.size()), [&](int i) {
      kernels::block_chain(chains, blocks[static_cast<std::size_t>(i)]);
    });
    const int64_t activations = attended + 2 * hidden + wide + heads;
    lines.write(name,
                {.bytes = static_cast<double>(kStepElement * (weights + rows * activations)),
                 .flops = 2.0 * static_cast<double>(rows * weights)},
                seconds);
  }

  /// `numbers`: read and written per row.
  template <typename Call>
  void rowwise(const char* what, int64_t rows, int64_t numbers, const Call& call) const {
    const std::string name = fmt::format("{}-r{}", what, rows);
    if (!lines.wants(name)) return;
    lines.write(name, {.bytes = static_cast<double>(rows * numbers * kStepElement)},
                recorded_seconds(16, call));
  }

  void rows_of_a_step() const {
    const int64_t hidden = config.hidden_size, wide = config.intermediate_size;
    const Tensor weight = random({hidden});
    for (const int64_t rows : {256, 8192}) {
      const int count = num_cold_copies(rows * hidden * kStepElement);
      const std::vector<Tensor> x = copies(count, {rows, hidden});
      const Tensor update = random({rows, hidden});
      // The sum is read, written and normed: four passes with the update and the result.
      rowwise("norm", rows, 4 * hidden, [&](int i) {
        device.add_rms_norm_(x[static_cast<std::size_t>(i % count)], update, weight,
                             config.norm_eps);
      });
      const int wide_count = num_cold_copies(rows * 2 * wide * kStepElement);
      const std::vector<Tensor> gate_up = copies(wide_count, {rows, 2 * wide});
      rowwise("swiglu", rows, 3 * wide,
              [&](int i) { device.swiglu(gate_up[static_cast<std::size_t>(i % wide_count)]); });
    }
  }

  /// `logits`: [R, V]. top_k -1 and top_p 1 truncate nothing.
  void sample(const char* what, const Tensor& logits, int64_t top_k, double top_p) const {
    const int64_t sampled = logits.size(0);
    const std::string name = fmt::format("{}-r{}", what, sampled);
    if (!lines.wants(name)) return;
    const at::TensorOptions floats = logits.options();
    const Tensor token = at::empty({sampled}, floats.dtype(at::kInt)),
                 log_prob = at::empty({sampled}, floats);
    kernels::SampleRows rows;
    rows.uniform_R = at::rand({sampled}, floats.dtype(at::kDouble)).clamp(1e-6, 1 - 1e-6);
    rows.temperature_R = at::ones({sampled}, floats);
    rows.top_p_R = at::full({sampled}, top_p, floats);
    rows.min_p_R = at::zeros({sampled}, floats);
    rows.top_k_R = at::full({sampled}, top_k, floats.dtype(at::kInt));
    const double seconds = recorded_seconds(8, [&](int) {
      kernels::opened_gpu().sample(logits, rows, {token, log_prob, {}});
    });
    lines.write(name, {.bytes = static_cast<double>(logits.nbytes())}, seconds);
  }

  void sampling() const {
    const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
    const Tensor logits = at::randn({256, config.vocab_size}, floats) * 3;
    sample("sample", logits, -1, 1);
    sample("sample-top-p", logits, -1, 0.95);
    sample("sample-top-p", logits.narrow(0, 0, 1), -1, 0.95);
    sample("sample-top-k", logits, 50, 1);
    // Too many tokens are about as likely as the last one kept to be sorted.
    sample("sample-top-p-flat", logits * 0.005, -1, 0.95);
    sample("sample-top-p-equal", at::zeros_like(logits), -1, 0.95);
  }
};

}  // namespace

void measure_step_kernels(const model::ModelConfig& config, const KernelLines& lines) {
  const at::NoGradGuard no_grad;
  const StepBench bench{config, lines};
  bench.products();
  for (const int64_t rows : {512, 1000, 2048, 8192, 16384}) bench.gated_product(rows);
  for (const int64_t rows : {1, 8, 32, 64, 128, 256}) bench.block_chain(rows);
  bench.rows_of_a_step();
  if (!lines.only.empty()) bench.all_candidates();  // minutes
  bench.sampling();
}

}  // namespace slime::bench
