#include "tinker/whole_directory.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <system_error>

#include "core/disk_reserve.h"
#include "core/error.h"
#include "train/checkpoint_directory.h"
#include "train/checkpoint_room.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

ConfigError unwritten(const fs::path& directory, std::error_code reason, uint64_t bytes) {
  const std::string told =
      fmt::format("{}: cannot be written: {}", directory.string(), reason.message());
  if (!says_full(reason.value())) return ConfigError(told);
  std::error_code unknown;
  const fs::space_info room = fs::space(directory.parent_path(), unknown);
  return ConfigError(fmt::format(
      "{}; it takes about {}{}: delete what was saved before, or free some space there, and save "
      "again",
      told, megabytes(bytes),
      unknown ? "" : fmt::format(", and {} are free", megabytes(room.available))));
}

}  // namespace

void write_whole_directory(const fs::path& directory, uint64_t bytes,
                           const std::function<fs::path(const fs::path&)>& fill) {
  const fs::path part = directory.parent_path() / ("." + directory.filename().string() + ".part");
  const auto remove_part = [&part] {
    std::error_code ignored;
    fs::remove_all(part, ignored);
  };
  remove_part();
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { remove_part(); });
  std::error_code reason;
  try {
    const fs::path written = fill(part);
    std::error_code ignored;
    fs::remove_all(train::put_in_place(written, directory), ignored);
    return;
  } catch (const train::CheckpointUnwritten& error) {
    reason = error.reason();
  } catch (const std::system_error& error) {
    reason = error.code();
  }
  remove_part();  // before the room is looked at
  throw unwritten(directory, reason, bytes);
}

}  // namespace slime::tinker
