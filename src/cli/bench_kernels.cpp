#include "cli/bench_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "cli/bench_gpu_kernels.h"
#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/workload.h"
#include "kernels/device.h"
#include "kernels/gpu/gpu.h"
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
  CLI::App app(
      "On the CPU matrix products of SmolLM2-135M at decode and training sizes, on a GPU each "
      "kernel "
      "of engine and trainer; one JSON line each.",
      "slime bench kernels");
  std::string device = "cpu", model = "qwen3-4b", file = "bench/gpu/workloads.json", only;
  app.add_option("--device", device, "cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--model", model, "With cuda: a model of the file of workloads")
      ->capture_default_str();
  app.add_option("--workloads-file", file, "With cuda: the file of workloads")
      ->capture_default_str();
  app.add_option("--only", only, "With cuda: kernels whose name holds this");
  double budget_seconds = 0.3;
  std::vector<int64_t> rows{1, 8, 32, 128, 1024};
  app.add_option("--seconds", budget_seconds, "On the CPU: time per measurement");
  app.add_option("--rows", rows, "On the CPU: rows of the activations");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (device == "cuda") {
    const engine::WorkloadFile workloads = engine::read_workloads(file);
    const auto found = workloads.models.find(model);
    if (found == workloads.models.end())
      throw ConfigError(fmt::format("--model {}: {} has no such model", model, file));
    kernels::open_gpu();
    bench_gpu_kernels(model::parse_model_config(found->second, model), only);
    return 0;
  }
  at::NoGradGuard no_grad;
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t count : rows) {
      for (const Product& product : kProducts) measure(product, count, dtype, budget_seconds);
    }
  }
  return 0;
}

}  // namespace slime::cli
