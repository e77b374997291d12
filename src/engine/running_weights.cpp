#include "engine/running_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "engine/error_text.h"
#include "model/config_difference.h"

namespace slime::engine {
namespace {

std::string why_weights_differ(const std::vector<model::NamedWeight>& running,
                               const std::vector<model::NamedWeight>& fresh) {
  if (running.size() != fresh.size()) {
    return fmt::format("the checkpoint has {} tensors, the running model {}", fresh.size(),
                       running.size());
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i].name == fresh[i].name && running[i].shape == fresh[i].shape &&
        running[i].offset == fresh[i].offset) {
      continue;
    }
    return fmt::format("{} [{}] stands where the running model has {} [{}]", fresh[i].name,
                       fmt::join(fresh[i].shape, ", "), running[i].name,
                       fmt::join(running[i].shape, ", "));
  }
  return {};
}

}  // namespace

Expected<std::shared_ptr<model::Network>> RunningWeights::load(
    const std::filesystem::path& directory) const {
  try {
    const std::vector<std::string> fields =
        model::differing_fields(network_.config(), model::read_model_config(directory));
    if (!fields.empty()) {
      return failure(
          fmt::format("{}: is another model than the running model: its config.json has {}",
                      directory.string(), fmt::join(fields, ", ")));
    }
    std::shared_ptr<model::Network> fresh = model::load_network(
        directory, {.weights = network_.weights().flat().scalar_type(), .activations = at::kFloat});
    const std::string difference =
        why_weights_differ(network_.weights().tensors(), fresh->weights().tensors());
    if (!difference.empty()) return failure(directory.string() + ": " + difference);
    return fresh;
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

void RunningWeights::copy_from(model::Network& fresh) {
  const at::NoGradGuard no_grad;
  Tensor target = network_.weights().flat();
  target.copy_(fresh.weights().flat());
}

}  // namespace slime::engine
