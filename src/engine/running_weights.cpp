#include "engine/running_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "engine/device_copies.h"
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
        running[i].full_shape == fresh[i].full_shape) {
      continue;
    }
    return fmt::format("{} [{}] stands where the running model has {} [{}]", fresh[i].name,
                       fmt::join(fresh[i].shape, ", "), running[i].name,
                       fmt::join(running[i].shape, ", "));
  }
  return {};
}

constexpr const char* kAdaptersStay =
    "the engine has adapters beside weights that stay as they are";

/// Where updates are expected: on a GPU, and for formats, which are made next to what runs. Adapters are copied from
/// where they are, and the weights beside them never change.
FreshWeights second_of(model::Network& running, bool stages) {
  const model::Weights& weights = running.weights();
  const bool has_second = stages && running.adapters() == nullptr &&
                          (weights.has_formats() || weights.flat().is_cuda());
  return has_second ? weights.buffers().empty_like() : FreshWeights();
}

}  // namespace

RunningWeights::RunningWeights(model::Network& network, const comm::Mesh& mesh, bool stages)
    : network_(&network), mesh_(mesh), staged_(second_of(network, stages)) {}

Expected<std::shared_ptr<model::Network>> RunningWeights::load(
    const std::filesystem::path& directory) const {
  if (network_.load()->adapters() != nullptr) return failure(kAdaptersStay);
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
        mesh_, model::draft_layers_of(network_.load()->config()));
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

Expected<RunningWeights::Changed> RunningWeights::with(const model::TensorUpdate& update) {
  const at::NoGradGuard no_grad;
  if (network_.load()->adapters() != nullptr) return failure(kAdaptersStay);
  try {
    const bool begins = !copy_ || copied_ != version();
    if (begins) {
      copy_ = model::make_blank_network(network_.load()->config(),
                                        {.weights = running().flat().scalar_type()}, mesh_);
      copy_->weights().copy_from(running());
    }
    copied_ = -1;
    model::write_tensors(update, *copy_);
    return Changed{.network = copy_, .begins = begins};
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    copy_.reset();
    return failure(text_of(error));
  }
}

Expected<WeightRows> RunningWeights::rows_of(const std::string& name, int64_t most_rows) {
  const model::Weights& weights = running();
  const auto& tensors = weights.tensors();
  const auto found = std::ranges::find(tensors, name, &model::NamedWeight::name);
  if (found == tensors.end()) return failure("the model has no tensor " + name);
  if (!found->slices.is_whole()) return failure(name + " is divided among the engine's ranks");
  if (found->offset < 0) return failure(name + " is stored as codes");
  Tensor rows = model::Weights::view(weights.flat(), *found);
  rows = rows.narrow(0, 0, std::min(most_rows, rows.size(0))).to(at::kCPU, at::kFloat).contiguous();
  const float* first = rows.const_data_ptr<float>();
  return WeightRows{.shape = rows.sizes().vec(), .values = {first, first + rows.numel()}};
}

Expected<FreshWeights> RunningWeights::stage(model::Network& fresh) {
  const at::NoGradGuard no_grad;
  FreshWeights complete = fresh.trained().buffers();
  const bool has_adapters = network_.load()->adapters() != nullptr;
  if (has_adapters != (fresh.adapters() != nullptr)) return failure(kAdaptersStay);
  const bool is_whole = !has_adapters;  // an adapter is copied from where it is
  try {
    if (is_whole && running().has_formats() != fresh.weights().has_formats()) {
      if (!stages()) staged_ = running().buffers().empty_like();
      running().make_buffers(fresh.weights(), staged_);
      complete = staged_;
    } else if (is_whole && stages()) {
      staged_.copy_from(complete);
      complete = staged_;
    }
    wait_for_copies(complete.flat_N.device());
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
