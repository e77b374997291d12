#include "bench/made_up_adapters.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "engine/ranks/rank_adapters.h"
#include "model/adapter_files.h"
#include "model/adapters.h"

namespace slime::bench {
namespace {

/// Of A and B: what they add to a product stays small.
constexpr double kBound = 1e-2;

/// Whole, whichever slices of it the network takes.
void write_made_up_adapter(model::Network& network, int64_t rank, const comm::Mesh& mesh,
                           const std::filesystem::path& directory) {
  const auto tensors = make_up_adapter(network, rank, mesh);
  std::vector<model::TensorToWrite> whole;
  for (const model::NamedWeight& weight : tensors->weights().tensors()) {
    whole.push_back({weight.name, weight.full_shape, at::kFloat, [shape = weight.full_shape] {
                       return at::empty(shape).uniform_(-kBound, kBound);
                     }});
  }
  model::write_adapter(directory, tensors->form(), whole);
}

}  // namespace

std::shared_ptr<model::AdapterTensors> make_up_adapter(model::Network& network, int64_t rank,
                                                       const comm::Mesh& mesh) {
  model::AdapterConfig config;
  config.rank = rank;
  config.alpha = static_cast<double>(rank);
  config.targets = {"all-linear"};
  auto tensors = std::make_shared<model::AdapterTensors>(
      network.config(), network.weights(), model::form_of(config, network.config()), mesh);
  tensors->weights().flat().uniform_(-kBound, kBound);
  return tensors;
}

void add_made_up_adapter(model::Network& network, int64_t rank, const comm::Mesh& mesh) {
  auto adapters = std::make_shared<model::Adapters>(network, 1);
  adapters->put(0, make_up_adapter(network, rank, mesh));
  network.set_adapters(std::move(adapters));
}

std::unique_ptr<model::Network> with_made_up_adapter(model::Network& network) {
  const bool is_on_gpu = network.weights().flat().is_cuda();
  const auto precision =
      is_on_gpu ? model::Precision::on_gpu("bfloat16") : model::Precision::of("float32");
  auto other = model::with_another_adapter(network, precision);
  other->trained().flat().uniform_(-kBound, kBound);
  return other;
}

std::unique_ptr<engine::ServedAdapters> open_made_up_adapters(model::Network& network,
                                                              const AdapterOptions& options,
                                                              const comm::Mesh& mesh,
                                                              engine::Followers* followers) {
  if (options.rank == 0) return nullptr;
  if (options.count == 0 && followers == nullptr) {
    add_made_up_adapter(network, options.rank, mesh);
    return nullptr;
  }
  const TemporaryFolder folder("slime-bench");
  write_made_up_adapter(network, options.rank, mesh, folder.path());
  if (options.count == 0) {
    engine::load_adapter_on_ranks(network, folder.path(), mesh, followers);
    return nullptr;
  }
  auto adapters = std::make_unique<engine::ServedAdapters>(network, options.count, mesh, followers);
  for (const std::string& name : names_of(options)) {
    const auto loaded =
        adapters->load(name, folder.path().string(), /*is_pinned=*/true, /*replaces=*/false);
    if (!loaded) throw ConfigError("adapter " + name + ": " + loaded.error().message);
  }
  return adapters;
}

std::vector<std::string> names_of(const AdapterOptions& options) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < options.count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace slime::bench
