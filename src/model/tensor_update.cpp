#include "model/tensor_update.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "core/error.h"

namespace slime::model {
namespace {

constexpr std::size_t kMostProblems = 20;

/// Where a tensor of files goes.
struct Place {
  Tensor own;
  at::IntArrayRef full_shape;
  const Slices* slices = nullptr;  // that the rank holds; null: all
};

std::string problem_of(const std::string& name, const Tensor& value,
                       const std::map<std::string, Place>& places) {
  const auto place = places.find(name);
  if (place == places.end()) return fmt::format("the model has no tensor {}", name);
  if (value.sizes() != place->second.full_shape) {
    return fmt::format("{} is [{}], the model's is [{}]", name, fmt::join(value.sizes(), ", "),
                       fmt::join(place->second.full_shape, ", "));
  }
  if (!at::isFloatingType(value.scalar_type()) || value.element_size() < 2)
    return fmt::format("{} is {}; float32, float16 and bfloat16 are taken", name,
                       c10::toString(value.scalar_type()));
  if (!at::isfinite(value).all().item<bool>())
    return fmt::format("{} has numbers that are not finite", name);
  return {};
}

}  // namespace

void write_tensors(const TensorUpdate& update, Network& network) {
  const at::NoGradGuard no_grad;
  const Weights& weights = network.weights();
  std::map<std::string, Place> places;
  for (const NamedWeight& weight : weights.tensors())
    places.emplace(weight.name, Place{.own = Weights::view(weights.flat(), weight),
                                      .full_shape = weight.full_shape,
                                      .slices = &weight.slices});
  for (const NamedConstant& constant : weights.constants())
    places.emplace(constant.name,
                   Place{.own = constant.value, .full_shape = constant.value.sizes()});
  std::vector<std::string> problems;
  for (const auto& [name, value] : update.tensors) {
    if (!places.contains(name) && is_beside_network(network.config(), name)) continue;
    std::string problem = problem_of(name, value, places);
    if (!problem.empty()) problems.push_back(std::move(problem));
    if (problems.size() == kMostProblems) break;
  }
  if (!problems.empty()) throw ConfigError(problems);
  for (const auto& [name, value] : update.tensors) {
    const auto place = places.find(name);
    if (place == places.end()) continue;
    const Slices* slices = place->second.slices;
    place->second.own.copy_(slices == nullptr ? value : slices->of(value));
  }
}

}  // namespace slime::model
