#include "engine/running_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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
        running[i].whole_offset == fresh[i].whole_offset) {
      continue;
    }
    return fmt::format("{} [{}] stands where the running model has {} [{}]", fresh[i].name,
                       fmt::join(fresh[i].shape, ", "), running[i].name,
                       fmt::join(running[i].shape, ", "));
  }
  return {};
}

/// On a GPU as the caller says; what is made in other formats is always made beside what runs.
FreshWeights second_of(const model::Weights& running, bool stages) {
  const bool has_second = running.has_formats() || (stages && running.flat().is_cuda());
  return has_second ? running.buffers().empty_like() : FreshWeights();
}

}  // namespace

RunningWeights::RunningWeights(model::Network& network, const comm::Mesh& mesh, bool stages)
    : network_(&network), mesh_(mesh), staged_(second_of(network.weights(), stages)) {}

Expected<std::shared_ptr<model::Network>> RunningWeights::load(
    const std::filesystem::path& directory) const {
  try {
    const std::vector<std::string> fields =
        model::differing_fields(network_.load()->config(), model::read_model_config(directory));
    if (!fields.empty()) {
      return failure(
          fmt::format("{}: is another model than the running model: its config.json has {}",
                      directory.string(), fmt::join(fields, ", ")));
    }
    std::shared_ptr<model::Network> fresh = model::load_network(
        directory,
        {.weights = network_.load()->weights().flat().scalar_type(), .activations = at::kFloat},
        mesh_);
    const std::string difference =
        why_weights_differ(network_.load()->weights().tensors(), fresh->weights().tensors());
    if (!difference.empty()) return failure(directory.string() + ": " + difference);
    return fresh;
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

Expected<FreshWeights> RunningWeights::stage(model::Network& fresh) {
  const at::NoGradGuard no_grad;
  FreshWeights complete = fresh.weights().buffers();
  try {
    if (running().has_formats() != fresh.weights().has_formats()) {
      running().make_buffers(fresh.weights(), staged_);
      complete = staged_;
    } else if (stages()) {
      staged_.copy_from(complete);
      complete = staged_;
    }
    // sync: the engine's stream knows nothing of this thread's
    if (complete.flat_N.is_cuda()) {
      const at::Device device = complete.flat_N.device();
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
    }
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
  return complete;
}

Expected<WeightChecksums> RunningWeights::check(WeightCheck check, WeightChecksums now) {
  if (check == WeightCheck::kSnapshot) snapshot_ = now;
  if (check != WeightCheck::kCompare) return now;
  if (!snapshot_) return failure("there is no snapshot to compare with");
  const std::vector<std::string> different = differing_tensors(*snapshot_, now);
  if (different.empty()) return now;
  return failure(fmt::format("{} of {} tensors differ from the snapshot: {}", different.size(),
                             now.size(), list_of_tensors(different)));
}

}  // namespace slime::engine
