#include "bench/made_up_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "bench/workload.h"
#include "core/error.h"
#include "core/nearest_name.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {

model::ModelConfig read_shape(const ShapeOptions& options) {
  const WorkloadFile file = read_workloads(options.file);
  const auto shape = file.models.find(options.model);
  if (shape == file.models.end()) {
    std::vector<std::string_view> names;
    for (const auto& model : file.models) names.emplace_back(model.first);
    const auto nearest = nearest_name(options.model, names);
    throw ConfigError(fmt::format("{} has no model \"{}\"{}", options.file, options.model,
                                  nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
  }
  return model::parse_model_config(shape->second, options.model);
}

std::unique_ptr<model::Network> make_up_network(const model::ModelConfig& shape, double bound,
                                                const comm::Mesh& mesh) {
  return model::make_uniform_network(shape, model::Precision::on_gpu("bfloat16"), bound, mesh);
}

std::unique_ptr<model::Network> make_up_network(const model::ModelConfig& shape, double bound,
                                                kernels::MatrixFormat matrices) {
  model::Precision precision = model::Precision::on_gpu("bfloat16");
  precision.matrices = matrices;
  return model::make_uniform_network(shape, precision, bound);
}

std::unique_ptr<model::Network> make_up_network_on(const std::string& device,
                                                   const model::ModelConfig& shape, double bound) {
  if (device != "cuda")
    return model::make_uniform_network(shape, model::Precision::of("float32"), bound);
  kernels::open_gpu();
  return make_up_network(shape, bound);
}

std::unique_ptr<model::Network> make_up_network_on_host(const model::ModelConfig& shape,
                                                        at::ScalarType type, double bound) {
  constexpr int64_t kBlock = (int64_t{1} << 22) + 15;  // no divisor of rows: none are alike
  const at::NoGradGuard no_grad;
  auto network = model::make_blank_network(shape, {.weights = type, .activations = at::kFloat});
  const Tensor flat = network->weights().flat();
  const int64_t block = std::min(kBlock, flat.numel());
  const Tensor numbers = at::empty({block}, at::kFloat).uniform_(-bound, bound).to(type);
  for (int64_t begin = 0; begin < flat.numel(); begin += block) {
    const int64_t size = std::min(block, flat.numel() - begin);
    flat.narrow(0, begin, size).copy_(numbers.narrow(0, 0, size));
  }
  return network;
}

int64_t cache_bytes_on(const std::string& device) {
  return device == "cuda" ? most_free_bytes() : int64_t{1} << 30;
}

int64_t most_free_bytes() {
  return static_cast<int64_t>(0.8 * static_cast<double>(kernels::opened_gpu().free_bytes()));
}

}  // namespace slime::bench
