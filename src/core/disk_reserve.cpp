#include "core/disk_reserve.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace slime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = ".reserve";
constexpr uint64_t kMostBytes = uint64_t{4} << 20;
constexpr uint64_t kLeastBytes = uint64_t{16} << 10;
constexpr uint64_t kPartOfFree = 16;

}  // namespace

bool says_full(int error) { return error == ENOSPC || error == EDQUOT; }

bool keep_reserve(const fs::path& folder) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  const uint64_t bytes = std::min(kMostBytes, unknown ? 0 : space.available / kPartOfFree);
  if (bytes < kLeastBytes) return has_reserve(folder);
  const int file = ::open((folder / kName).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return false;
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  ::close(file);
  if (error != 0) remove_reserve(folder);
  return error == 0;
}

bool has_reserve(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / kName, unknown);
}

void remove_reserve(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder / kName, ignored);
}

bool release_reserve_for(const fs::path& file) {
  const fs::path folder = file.parent_path();
  const int problem = errno;  // of the write: callers say it where there is no reserve
  for (const fs::path& place : {folder, folder.parent_path()}) {
    std::error_code error;
    if (fs::remove(place / kName, error)) return true;
  }
  errno = problem;
  return false;
}

}  // namespace slime
