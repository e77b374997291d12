#include "buffer/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/disk_reserve.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

tl::unexpected<Error> last_failure() { return failure(std::strerror(errno)); }

class PosixFile final : public AppendFile {
 public:
  PosixFile(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  ~PosixFile() override { ::close(descriptor_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  Expected<void> append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && says_full(errno) && release_reserve_for(path_)) continue;
      if (count <= 0) return last_failure();
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
  }

  Expected<void> sync() override {
    if (::fsync(descriptor_) != 0) return last_failure();
    return {};
  }

  Expected<void> truncate(int64_t size) override {
    if (::ftruncate(descriptor_, size) != 0) return last_failure();
    return {};
  }

  Expected<int64_t> size() const override {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) return last_failure();
    return static_cast<int64_t>(status.st_size);
  }

 private:
  const std::filesystem::path path_;
  const int descriptor_;
};

std::unique_ptr<AppendFile> open_file(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
  if (descriptor < 0) {
    const bool is_there = (flags & O_EXCL) != 0 && errno == EEXIST;
    throw ConfigError(fmt::format(
        "{}: {}", path.string(),
        is_there ? "is there already" : fmt::format("cannot be opened: {}", std::strerror(errno))));
  }
  return std::make_unique<PosixFile>(path, descriptor);
}

}  // namespace

void sync_directory(const std::filesystem::path& file) {
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a file system that cannot do it
  ::fsync(descriptor);
  ::close(descriptor);
}

std::unique_ptr<AppendFile> create_append_file(const std::filesystem::path& path) {
  std::unique_ptr<AppendFile> file = open_file(path, O_CREAT | O_EXCL);
  sync_directory(path);
  return file;
}

std::unique_ptr<AppendFile> open_append_file(const std::filesystem::path& path) {
  return open_file(path, 0);
}

}  // namespace slime::buffer
