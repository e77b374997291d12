#include "engine/http/weight_pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "model/safetensors.h"

namespace slime::engine {
namespace {

namespace fs = std::filesystem;

/// Held by one process at a time.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& file)
      : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      ::close(descriptor_);
      descriptor_ = -1;
    }
    if (descriptor_ < 0)
      throw ConfigError(
          fmt::format("{}: cannot be locked: {}", file.string(), std::strerror(errno)));
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

std::optional<std::int64_t> version_in(const fs::path& state) {
  if (!fs::exists(state)) return std::nullopt;
  const json::value value = read_json_file(state, std::size_t{1} << 16);
  const json::value* version =
      value.is_object() ? value.get_object().if_contains("version") : nullptr;
  return version == nullptr ? std::nullopt : whole_number(*version);
}

/// Of the index, whose metadata says whether a version is whole.
void require_whole(const fs::path& folder) {
  const fs::path path = folder / "model.safetensors.index.json";
  if (!fs::exists(path)) return;
  const json::value index = read_json_file(path);
  const json::object* object = index.if_object();
  const json::value* metadata = object == nullptr ? nullptr : object->if_contains("metadata");
  if (metadata == nullptr || !metadata->is_object() ||
      !metadata->get_object().contains("delta_encoding"))
    return;
  throw ConfigError(
      fmt::format("{}: is the difference to another version, which is not read; whole versions are",
                  folder.string()));
}

void copy_all(const fs::path& folder, const fs::path& local) {
  std::set<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.is_symlink())
      throw ConfigError(fmt::format("{}: is no file", entry.path().string()));
    const fs::path name = entry.path().filename();
    const fs::path copy = local / (name.string() + ".tmp");
    fs::remove(copy);  // through a link of this name it would be written elsewhere
    fs::copy_file(entry.path(), copy);
    names.insert(name);
  }
  // Shards of an older version would be taken for the model's.
  for (const auto& entry : fs::directory_iterator(local))
    if (entry.path().extension() == ".safetensors" && !names.contains(entry.path().filename()))
      fs::remove(entry.path());
  for (const fs::path& name : names) fs::rename(local / (name.string() + ".tmp"), local / name);
  model::sync_directory(local);
}

}  // namespace

std::string pull_weights(const fs::path& source, const fs::path& local, std::int64_t version) {
  try {
    const fs::path folder = source / fmt::format("weight_v{:06}", version);
    if (!fs::is_directory(folder))
      throw ConfigError(fmt::format("{}: is not there", folder.string()));
    const fs::path own = local / ".weight_sync";
    for (const fs::path& each : {folder, own})  // which may lead out of what the server may use
      if (fs::is_symlink(each))
        throw ConfigError(fmt::format("{}: is a link, should be a folder", each.string()));
    require_whole(folder);
    fs::create_directories(own);
    const FolderLock lock(own / "lock");
    const fs::path state = own / "state.json";
    if (version_in(state) == version) return fmt::format("version {} is there already", version);
    fs::remove(state);
    copy_all(folder, local);
    model::write_file(state, json_text(json::value{{"version", version}}) + "\n");
    return fmt::format("version {} is pulled", version);
  } catch (const std::filesystem::filesystem_error& error) {
    throw ConfigError(error.what());
  } catch (const std::system_error& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace slime::engine
