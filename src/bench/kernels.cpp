/// Kernels alone: on the CPU the matrix products of one model next to ATen's, on a GPU each kernel of
/// engine and trainer (bench/gpu_kernels.h).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cstdint>

#include "bench/flags.h"
#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "bench/made_up_model.h"
#include "core/json_lines.h"
#include "kernels/device.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "kernels/linear.h"

namespace slime::bench {
namespace {

struct ProductOptions {
  double budget_seconds = 0.3;  // of each measurement
  std::vector<int64_t> rows{1, 8, 32, 128, 1024};
};

struct Product {
  const char* name;
  int64_t outputs, inputs;
};

/// SmolLM2-135M.
constexpr std::array kProducts = {Product{"qkv", 960, 576}, Product{"output", 576, 576},
                                  Product{"gate_up", 3072, 576}, Product{"down", 576, 1536},
                                  Product{"head", 49152, 576}};

void measure_product(const Product& product, int64_t rows, at::ScalarType dtype,
                     double budget_seconds) {
  const Tensor x_TI = at::randn({rows, product.inputs});
  const Tensor wide_OI = at::randn({product.outputs, product.inputs});
  const kernels::Param weight{wide_OI.to(dtype), {}};
  const double flops = 2.0 * static_cast<double>(rows * product.outputs * product.inputs);
  const double bytes = static_cast<double>(weight.value.nbytes());
  json::object line;
  line["product"] = product.name;
  line["rows"] = rows;
  line["weights"] = dtype == at::kFloat ? "float32" : "bfloat16";
  const auto add = [&](const char* name, const auto& work) {
    const double seconds = best_seconds_within(budget_seconds, work);
    line[name] = json::object{{"microseconds", seconds * 1e6},
                              {"gflop_per_second", flops / seconds * 1e-9},
                              {"weight_gb_per_second", bytes / seconds * 1e-9}};
  };
  add("forward", [&] { kernels::linear(x_TI, weight); });
  add("aten_float32", [&] { at::mm(x_TI, wide_OI.t()); });
  if (rows >= 256) {
    const Tensor dy_TO = at::randn({rows, product.outputs});
    Tensor grad_OI = at::zeros_like(wide_OI);
    const kernels::Device& device = kernels::kernels_for(x_TI);
    add("input_gradient", [&] { device.linear_input_grad(dy_TO, weight.value); });
    add("weight_gradient", [&] { device.add_linear_weight_grad_(grad_OI, dy_TO, x_TI); });
  }
  write_json_line(line);
}

void measure_products(const ProductOptions& options) {
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t rows : options.rows) {
      for (const Product& product : kProducts)
        measure_product(product, rows, dtype, options.budget_seconds);
    }
  }
}

void measure_gpu_kernels(const ShapeOptions& shape, const std::string& only) {
  const model::ModelConfig config = read_shape(shape);
  kernels::open_gpu();
  const KernelLines lines{.limits = kernels::measure_gpu_limits(), .only = only};
  measure_step_kernels(config, lines);
  measure_training_kernels(config, lines);
  measure_exact_kernels(config, lines);
  kernels::opened_gpu().release_unused_memory();
  measure_paged_attention(config, lines);
  measure_sparse_kernels(lines);
}

}  // namespace

int kernels_alone(const std::string& name, Arguments arguments) {
  std::string device = "cpu", only;
  ProductOptions products;
  ShapeOptions shape;
  Flags flags(
      "On the CPU matrix products of SmolLM2-135M at decode and training sizes, on a GPU each "
      "kernel of engine and trainer; one JSON line each.",
      name);
  flags.device(device, "cpu or cuda");
  flags.shape(shape);
  flags.add_option("--only", only, "With cuda: kernels whose name holds this");
  flags.add("--seconds", products.budget_seconds, "On the CPU: time per measurement");
  flags.list("--rows", products.rows, "On the CPU: rows of the activations");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  if (device == "cuda") {
    measure_gpu_kernels(shape, only);
  } else {
    measure_products(products);
  }
  return 0;
}

}  // namespace slime::bench
