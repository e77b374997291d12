#include "sync/publisher.h"

#include <fmt/format.h>

#include <system_error>

#include "core/error.h"
#include "model/safetensors.h"
#include "model/save.h"

namespace slime::sync {
namespace fs = std::filesystem;
namespace {

/// `fill` writes into a folder of another name first.
void write_folder(const fs::path& folder, const std::function<void(const fs::path&)>& fill) {
  const fs::path root = folder.parent_path();
  const fs::path partial = root / fmt::format(".{}.partial", folder.filename().string());
  fs::create_directories(root);
  fs::remove_all(partial);
  fs::create_directory(partial);
  fill(partial);
  fs::remove_all(folder);  // of a run before, or of an epoch before
  fs::rename(partial, folder);
  model::sync_directory(root);
}

int64_t bytes_of_files(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

engine::WeightSource Publication::source() const {
  if (delta) return engine::FromNetwork{network, &*delta};
  if (!folder.empty()) return engine::FromDirectory{folder};
  return engine::FromNetwork{network};
}

double Publication::density() const {
  if (!delta || delta->num_elements == 0) return 1;
  return static_cast<double>(delta->num_changed) / static_cast<double>(delta->num_elements);
}

Publication Publisher::prepare(model::Network& network, WeightVersion version,
                               const Tensor& before_N) {
  Publication publication{.number = ++num_made_, .version = version, .network = &network};
  if (config_.sends_changes && published_ != 0 && before_N.defined()) {
    const model::Weights& weights = network.weights();
    publication.delta = model::make_delta(weights, before_N, weights.flat(), config_.encoding);
    publication.delta->base = published_;
  }
  if (config_.folder.empty()) return publication;
  publication.folder = config_.folder / fmt::format("weight_v{:06}", version);
  try {
    write(publication);
    publication.file_bytes = bytes_of_files(publication.folder);
  } catch (const std::system_error& error) {
    throw ConfigError(
        fmt::format("--update-weight-disk-dir {}: {}", config_.folder.string(), error.what()));
  }
  if (publication.delta) publication.delta->directory = publication.folder;
  if (config_.on_written) config_.on_written(publication.folder);
  return publication;
}

void Publisher::write(Publication& publication) const {
  model::Network& network = *publication.network;
  write_folder(publication.folder, [&](const fs::path& folder) {
    if (!publication.delta) return model::save_network(network, folder);
    model::write_delta(*publication.delta, network.weights(), folder, publication.version,
                       published_version_);
  });
}

void Publisher::end(const Publication& publication) {
  published_ = publication.number;
  published_version_ = publication.version;
  if (publication.folder.empty() || config_.keeps_files) return;
  std::error_code kept;  // by whoever else reads there
  fs::remove_all(publication.folder, kept);
}

}  // namespace slime::sync
