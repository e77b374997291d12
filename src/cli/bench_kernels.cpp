#include "cli/bench_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "kernels/device.h"
#include "kernels/linear.h"

namespace slime::cli {
namespace {

/// Best of as many runs as fit into the time, three at least.
template <typename Work>
double best_seconds(double budget_seconds, const Work& work) {
  const SystemClock clock;
  double best = 1e300, spent = 0;
  for (int i = 0; i < 3 || spent < budget_seconds; ++i) {
    const auto start = clock.now();
    work();
    const double seconds = seconds_between(start, clock.now());
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

struct Product {
  const char* name;
  int64_t outputs, inputs;
};

/// SmolLM2-135M.
constexpr std::array kProducts = {Product{"qkv", 960, 576}, Product{"output", 576, 576},
                                  Product{"gate_up", 3072, 576}, Product{"down", 576, 1536},
                                  Product{"head", 49152, 576}};

void measure(const Product& product, int64_t rows, at::ScalarType dtype, double budget_seconds) {
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
    const double seconds = best_seconds(budget_seconds, work);
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

}  // namespace

int bench_kernels(std::span<const std::string> arguments) {
  CLI::App app("Matrix products of SmolLM2-135M at decode and training sizes, one JSON line each.",
               "slime bench kernels");
  double budget_seconds = 0.3;
  std::vector<int64_t> rows{1, 8, 32, 128, 1024};
  app.add_option("--seconds", budget_seconds, "Time per measurement");
  app.add_option("--rows", rows, "Rows of the activations");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  at::NoGradGuard no_grad;
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t count : rows) {
      for (const Product& product : kProducts) measure(product, count, dtype, budget_seconds);
    }
  }
  return 0;
}

}  // namespace slime::cli
