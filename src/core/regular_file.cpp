#include "core/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime {
namespace {

std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

void require_regular(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  throw ConfigError(
      fmt::format("{}: is {}, not a regular file", path.string(), kind_of_file(status.st_mode)));
}

}  // namespace

RegularFile open_regular_file(const std::filesystem::path& path, std::string_view of_many) {
  const auto fail = [&] {
    throw ConfigError(fmt::format("{}: cannot be opened: {}{}", path.string(), std::strerror(errno),
                                  errno == EMFILE ? of_many : ""));
  };
  struct stat status {};
  // Before it is opened: that alone may rewind a tape. Afterwards: another may be there by then.
  if (::stat(path.c_str(), &status) != 0) fail();
  require_regular(path, status);
  RegularFile file{
      .descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (file.descriptor.get() < 0 || ::fstat(file.descriptor.get(), &status) != 0) fail();
  require_regular(path, status);
  file.num_bytes = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::string read_regular_file(const std::filesystem::path& path, std::size_t limit_bytes,
                              std::string_view kind) {
  const RegularFile file = open_regular_file(path);
  if (file.num_bytes > limit_bytes) {
    throw ConfigError(fmt::format("{}: {} bytes of {}, more than the limit of {}", path.string(),
                                  file.num_bytes, kind, limit_bytes));
  }
  std::string text(file.num_bytes, '\0');
  for (std::size_t begin = 0; begin < text.size();) {
    const ssize_t count = ::read(file.descriptor.get(), text.data() + begin, text.size() - begin);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
    if (count == 0)
      throw ConfigError(fmt::format("{}: cannot be read: ends at byte {}", path.string(), begin));
    begin += static_cast<std::size_t>(count);
  }
  return text;
}

}  // namespace slime
