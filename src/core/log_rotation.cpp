#include "core/log_rotation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

namespace slime {
namespace {

std::filesystem::path set_aside(const std::filesystem::path& file) { return file.string() + ".1"; }

bool is_above(const std::filesystem::path& file, std::uintmax_t limit_bytes) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  return !error && size > limit_bytes;
}

}  // namespace

void rotate_log(const std::filesystem::path& file, std::uintmax_t limit_bytes) {
  std::error_code ignored;
  if (is_above(file, limit_bytes)) std::filesystem::rename(file, set_aside(file), ignored);
}

void rotate_log_of_others(const std::filesystem::path& file, std::uintmax_t limit_bytes) {
  if (!is_above(file, limit_bytes)) return;
  std::error_code ignored;
  std::filesystem::copy_file(file, set_aside(file),
                             std::filesystem::copy_options::overwrite_existing, ignored);
  std::filesystem::resize_file(file, 0, ignored);
}

void rotate_own_output(std::uintmax_t limit_bytes) {
  struct stat output {};
  if (::fstat(STDOUT_FILENO, &output) != 0 || !S_ISREG(output.st_mode)) return;
  if (static_cast<std::uintmax_t>(output.st_size) <= limit_bytes) return;
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/fd/1", error);
  struct stat named {};
  const bool is_there = !error && ::stat(file.c_str(), &named) == 0 &&
                        named.st_ino == output.st_ino && named.st_dev == output.st_dev;
  if (!is_there) return;  // somebody else has set it aside
  std::filesystem::rename(file, set_aside(file), error);
  const int fresh =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, output.st_mode & 0777);
  if (fresh < 0) return;
  std::fflush(nullptr);
  ::dup2(fresh, STDOUT_FILENO);
  ::dup2(fresh, STDERR_FILENO);
  ::close(fresh);
}

}  // namespace slime
