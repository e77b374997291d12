#include "core/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"

namespace slime {
namespace {

/// 0, or the errno of what went wrong.
int write_all(const std::string& path, std::string_view text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return errno;
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (::close(descriptor) != 0 && error == 0)
    error = errno;  // file systems over a network tell here
  return error;
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::string unfinished = path.string() + ".part";
  int error = write_all(unfinished, text);
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(unfinished.c_str());
  throw ConfigError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(error)));
}

void sync_path(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return;
  const int error = descriptor < 0 || ::fsync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) ::close(descriptor);
  // Some file systems sync no folders, and say so.
  if (error == 0 || error == EINVAL) return;
  throw ConfigError(
      fmt::format("{}: cannot be written to the disk: {}", path.string(), std::strerror(error)));
}

}  // namespace slime
