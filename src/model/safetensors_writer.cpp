#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/json.h"
#include "model/safetensors.h"

namespace slime::model {
namespace {

constexpr int64_t kBlockElements = 1 << 20;  // converted and written at a time

/// PATH.tmp until commit() renames it over PATH; removed when something throws before.
class PendingFile final {
 public:
  explicit PendingFile(const std::filesystem::path& path)
      : path_(path), temporary_(path.string() + ".tmp") {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail("cannot be created");
  }
  ~PendingFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* bytes, size_t size) {
    const auto* from = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t written = ::write(descriptor_, from, std::min<size_t>(size, size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot be written");
      from += written;
      size -= static_cast<size_t>(written);
    }
  }

  void commit() {
    if (::fsync(descriptor_) != 0) fail("cannot be synced");
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be closed");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
    committed_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::system_error(errno, std::generic_category(), path_.string() + " " + what);
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       std::optional<at::ScalarType> dtype, const NamedTensors& as_they_are) {
  struct Entry {
    const std::string& name;
    const Tensor& tensor;
    at::ScalarType stored;
  };
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, tensor, dtype.value_or(tensor.scalar_type())});
  for (const auto& [name, tensor] : as_they_are)
    entries.push_back({name, tensor, tensor.scalar_type()});
  json::object header;
  header["__metadata__"] = json::object{{"format", "pt"}};
  uint64_t offset = 0;
  for (const auto& [name, tensor, stored] : entries) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * c10::elementSize(stored);
    json::object& entry = header[name].emplace_object();
    entry["dtype"] = safetensors_dtype(stored);
    json::array& shape = entry["shape"].emplace_array();
    for (const int64_t size : tensor.sizes()) shape.push_back(size);
    entry["data_offsets"] = json::array{offset, offset + bytes};
    offset += bytes;
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start at multiples of eight bytes

  PendingFile file(path);
  const uint64_t length = text.size();
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const auto& [name, tensor, stored] : entries) {
    // A tensor elsewhere comes here whole: small copies from a GPU cost more than their bytes.
    const Tensor flat = tensor.detach().cpu().contiguous().view({-1});
    const int64_t step = stored == flat.scalar_type() ? flat.numel() : kBlockElements;
    for (int64_t begin = 0; begin < flat.numel(); begin += step) {
      const Tensor block = flat.narrow(0, begin, std::min(step, flat.numel() - begin)).to(stored);
      file.write(block.const_data_ptr(), block.nbytes());
    }
  }
  file.commit();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  PendingFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    throw std::system_error(errno, std::generic_category(),
                            directory.string() + " cannot be opened");
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0)
    throw std::system_error(error, std::generic_category(),
                            directory.string() + " cannot be synced");
}

}  // namespace slime::model
