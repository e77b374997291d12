#include "train/checkpoint_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "core/crc32c.h"
#include "core/disk_reserve.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "core/replace_file.h"
#include "model/safetensors.h"
#include "train/checkpoint_room.h"

namespace slime::train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "iter_";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr const char* kCommitted = "COMMITTED";
constexpr const char* kLatest = "latest_checkpointed_iteration.txt";

struct FileSum {
  uint64_t size = 0;
  uint32_t crc = 0;
};

FileSum sum_of_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    throw std::system_error(errno, std::generic_category(), path.string() + " cannot be read");
  std::vector<char> block(size_t{4} << 20);
  FileSum sum;
  ssize_t count = 0;
  while ((count = ::read(descriptor, block.data(), block.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    sum.crc = crc32c({block.data(), static_cast<size_t>(count)}, sum.crc);
    sum.size += static_cast<uint64_t>(count);
  }
  const int error = errno;
  ::close(descriptor);
  if (count < 0)
    throw std::system_error(error, std::generic_category(), path.string() + " cannot be read");
  return sum;
}

/// Regular files below `directory`, as relative paths in order.
std::vector<std::string> files_below(const fs::path& directory) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), directory).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void sync_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced)
    throw std::system_error(error, std::generic_category(), path.string() + " cannot be synced");
}

/// Lists, sums and syncs what `fill` wrote; COMMITTED comes last.
void commit(const fs::path& directory) {
  json::array files;
  for (const std::string& name : files_below(directory)) {
    sync_file(directory / name);
    const FileSum sum = sum_of_file(directory / name);
    files.push_back({{"file", name}, {"size", sum.size}, {"crc32c", sum.crc}});
  }
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) model::sync_directory(entry.path());
  }
  model::write_file(directory / kCommitted,
                    to_pretty_json(json::object{{"version", 1}, {"files", files}}));
  model::sync_directory(directory);
}

void remove_unfinished(const fs::path& root) {
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) fs::remove_all(entry.path());
  }
}

std::string damage_of_file(const fs::path& directory, const FieldReader& entry) {
  const std::string name = *entry.text("file");
  const fs::path path = directory / name;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return name + " is missing";
  const int64_t expected = *entry.integer("size", 0);
  if (size != static_cast<uint64_t>(expected))
    return fmt::format("{} has {} bytes instead of {}", name, size, expected);
  if (sum_of_file(path).crc != *entry.integer("crc32c", 0)) return name + " has a wrong checksum";
  return {};
}

}  // namespace

std::string checkpoint_name(int64_t iteration) {
  return fmt::format("{}{:07}", kPrefix, iteration);
}

std::vector<int64_t> checkpoint_iterations(const fs::path& root) {
  std::vector<int64_t> iterations;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !name.starts_with(kPrefix)) continue;
    int64_t iteration = 0;
    const char* end = name.data() + name.size();
    const auto [rest, status] = std::from_chars(name.data() + kPrefix.size(), end, iteration);
    if (status == std::errc() && rest == end) iterations.push_back(iteration);
  }
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

std::optional<int64_t> tracked_iteration(const fs::path& root) {
  std::ifstream file(root / kLatest);
  int64_t iteration = 0;
  if (!(file >> iteration) || iteration < 0) return std::nullopt;
  return iteration;
}

void set_tracked_iteration(const fs::path& root, int64_t iteration) {
  replace_file(root / kLatest, fmt::format("{}\n", iteration));
  sync_path(root / kLatest);
  sync_path(root);
}

fs::path put_in_place(const fs::path& unfinished, const fs::path& final_path) {
  const fs::path replaced = final_path.parent_path() / fmt::format("{}replaced-{}", kUnfinished,
                                                                   final_path.filename().string());
  fs::remove_all(replaced);  // of a process that died
  if (!fs::exists(final_path)) {
    fs::rename(unfinished, final_path);
    return {};
  }
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) ==
      0) {
    fs::rename(unfinished, replaced);
    return replaced;
  }
  fs::rename(final_path, replaced);
  fs::rename(unfinished, final_path);
  return replaced;
}

fs::path write_checkpoint_directory(const fs::path& root, int64_t iteration,
                                    const std::function<void(const fs::path&)>& fill) {
  const fs::path final_path = root / checkpoint_name(iteration);
  const fs::path unfinished = root / fmt::format("{}{}", kUnfinished, checkpoint_name(iteration));
  const fs::path latest = root / fmt::format("{}{}", kUnfinished, kLatest);
  try {
    fs::create_directories(root);
    remove_unfinished(root);
    fs::create_directory(unfinished);
    fill(unfinished);
    commit(unfinished);
    // Whatever needs room comes before the first name changes.
    model::write_file(latest, fmt::format("{}\n", iteration));
    put_in_place(unfinished, final_path);
    model::sync_directory(root);
    fs::rename(latest, root / kLatest);
    model::sync_directory(root);
    remove_unfinished(root);
  } catch (const std::system_error& error) {
    const uint64_t written = bytes_below(unfinished);
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    fs::remove(latest, ignored);
    const std::string told = fmt::format(
        "checkpoint {} could not be written ({}); earlier checkpoints under {} are untouched. "
        "Free some space or give another --save",
        checkpoint_name(iteration), error.what(), root.string());
    if (says_full(error.code().value())) throw DiskFull(told, error.code(), written);
    throw CheckpointUnwritten(told, error.code());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
  return final_path;
}

std::string checkpoint_damage(const fs::path& directory) {
  if (!fs::exists(directory / kCommitted))
    return "COMMITTED is missing: it was not written to the end";
  try {
    const json::value committed = read_json_file(directory / kCommitted);
    if (!committed.is_object()) return "COMMITTED must hold a JSON object";
    const FieldReader fields(committed.get_object(), "");
    for (const FieldReader& entry : fields.required().list("files")) {
      const std::string damage = damage_of_file(directory, entry.required());
      if (!damage.empty()) return damage;
    }
  } catch (const std::exception& error) {
    return fmt::format("COMMITTED cannot be read: {}", error.what());
  }
  return {};
}

std::vector<int64_t> committed_iterations(const fs::path& root) {
  std::vector<int64_t> committed;
  for (const int64_t iteration : checkpoint_iterations(root)) {
    if (fs::exists(root / checkpoint_name(iteration) / kCommitted)) committed.push_back(iteration);
  }
  return committed;
}

/// Under a name that is no checkpoint's first.
void remove_checkpoint(const fs::path& directory) {
  const fs::path removed = directory.parent_path() /
                           fmt::format("{}removed-{}", kUnfinished, directory.filename().string());
  fs::remove_all(removed);
  fs::rename(directory, removed);
  fs::remove_all(removed);
}

void remove_old_checkpoints(const fs::path& root, int64_t keep, const fs::path& written) {
  if (keep <= 0) return;
  const std::vector<int64_t> committed = committed_iterations(root);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < committed.size(); ++i) {
    const fs::path directory = root / checkpoint_name(committed[i]);
    if (directory.filename() != written.filename()) remove_checkpoint(directory);
  }
}

void remove_checkpoints(const fs::path& root) {
  if (!fs::is_directory(root)) return;
  fs::remove(root / kLatest);
  for (const int64_t iteration : checkpoint_iterations(root))
    remove_checkpoint(root / checkpoint_name(iteration));
  remove_unfinished(root);
}

}  // namespace slime::train
