#include "train/checkpoint_room.h"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>

#include "train/checkpoint_directory.h"

namespace slime::train {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kUnitOfBlocks = 512;  // as stat(2) counts
/// Checkpoints of a run differ by less: by the state of the data.
constexpr uint64_t kPartThatDiffers = 64;

}  // namespace

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  const auto add = [&bytes](const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return;
    bytes += std::max<uint64_t>(static_cast<uint64_t>(status.st_blocks) * kUnitOfBlocks,
                                S_ISREG(status.st_mode) ? status.st_size : 0);
  };
  add(folder);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    add(entry->path());
  return bytes;
}

uint64_t expected_checkpoint_bytes(const fs::path& root) {
  const std::vector<int64_t> committed = committed_iterations(root);
  if (committed.empty()) return 0;
  return bytes_below(root / checkpoint_name(committed.back()));
}

uint64_t missing_checkpoint_bytes(const fs::path& root) {
  std::error_code unknown;
  const fs::space_info space = fs::space(root, unknown);
  const uint64_t newest = expected_checkpoint_bytes(root);
  const uint64_t expected = newest + newest / kPartThatDiffers;
  return unknown || expected <= space.available ? 0 : expected - space.available;
}

uint64_t missing_checkpoint_bytes(uint64_t expected_bytes, uint64_t written_bytes) {
  const uint64_t least = expected_bytes / kPartThatDiffers;
  return std::max(least, expected_bytes - std::min(expected_bytes, written_bytes + least));
}

std::vector<std::string> make_room_for_checkpoint(const fs::path& root, uint64_t missing_bytes) {
  const std::vector<int64_t> committed = committed_iterations(root);
  std::size_t newest = committed.size();
  while (newest > 0 && !checkpoint_damage(root / checkpoint_name(committed[newest - 1])).empty())
    --newest;
  uint64_t freed = 0;
  std::size_t count = 0;  // of those to remove
  while (count + 1 < newest && freed < missing_bytes)
    freed += bytes_below(root / checkpoint_name(committed[count++]));
  std::vector<std::string> removed;
  if (freed < missing_bytes) return removed;
  for (std::size_t i = 0; i < count; ++i) {
    removed.push_back(checkpoint_name(committed[i]));
    remove_checkpoint(root / removed.back());
  }
  return removed;
}

}  // namespace slime::train
