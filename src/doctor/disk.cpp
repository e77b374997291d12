#include "doctor/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace slime::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr int kPieces = 16;
constexpr double kLittleRoom = 5e9;
/// A checkpoint of a billion weights has 14 GB: two minutes.
constexpr double kSlow = 120e6;

std::string kind_of(const fs::path& folder) {
  struct statfs system {};
  if (::statfs(folder.c_str(), &system) != 0) return "";
  switch (static_cast<unsigned long>(system.f_type)) {
    case 0x6969:
      return "NFS";
    case 0x01021994:
      return "memory (tmpfs)";
    case 0x794C7630:
      return "a container's own layer (overlay)";
    case 0x0BD00BD0:
      return "Lustre";
    default:
      return "";
  }
}

/// A file without name, or one that is deleted at once where the file system has no such files.
int open_nameless(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
    return file;
  std::string name = (folder / ".slime-doctor-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// Bytes a second that arrive on the disk; below 0: errno has why not.
double measured_speed(int file) {
  std::vector<char> piece(kPiece);
  // Bytes that no file system makes smaller.
  unsigned state = 1;
  for (char& byte : piece) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kPieces; ++i)
    if (::write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) return -1;
  if (::fdatasync(file) != 0) return -1;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return static_cast<double>(kPiece) * kPieces / std::max(seconds, 1e-6);
}

}  // namespace

Checks check_disk(const fs::path& named) {
  fs::path folder = fs::absolute(named).lexically_normal();
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  if (!fs::is_directory(folder, error)) {
    return {{.area = "disk",
             .state = State::kProblem,
             .what = fmt::format("{} is no folder", folder.string()),
             .cure = "--run-dir with another one"}};
  }
  struct statvfs room {};
  ::statvfs(folder.c_str(), &room);
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  const std::string kind = kind_of(folder);
  Check check{.area = "disk",
              .what = fmt::format("{}{}: {} free", folder.string(),
                                  kind.empty() ? "" : fmt::format(", {}", kind), in_bytes(free))};
  const int file = open_nameless(folder);
  if (file < 0) {
    check.state = State::kProblem;
    check.what += fmt::format(", and it cannot be written: {}", std::strerror(errno));
    check.cure = "--run-dir with a folder of yours";
    return {check};
  }
  const bool has_room = free > 4.0 * kPieces * kPiece;
  const double speed = has_room ? measured_speed(file) : 0;
  const int why = errno;
  ::close(file);
  if (speed < 0) {
    check.state = State::kProblem;
    check.what += fmt::format(", and 64 MiB cannot be written: {}", std::strerror(why));
    check.cure = "another --run-dir; quotas and ulimit -f are the usual reasons";
    return {check};
  }
  if (has_room) check.what += fmt::format(", {}/s written", in_bytes(speed));
  if (free < kLittleRoom) {
    check.state = State::kNote;
    check.cure =
        "a checkpoint takes 14 bytes for each weight, and two are kept (--keep-checkpoints); "
        "--run-dir with another disk";
  } else if (has_room && speed < kSlow) {
    check.state = State::kNote;
    check.cure = "checkpoints will take long here: a larger --save-interval, or another --run-dir";
  }
  return {check};
}

}  // namespace slime::doctor
