#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.h"
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

uint64_t bytes_of(const TensorToWrite& tensor) {
  return static_cast<uint64_t>(c10::multiply_integers(tensor.shape)) *
         c10::elementSize(tensor.dtype);
}

std::vector<TensorToWrite> to_write(const NamedTensors& tensors,
                                    std::optional<at::ScalarType> dtype) {
  std::vector<TensorToWrite> all;
  for (const auto& [name, tensor] : tensors) {
    all.push_back({name, tensor.sizes().vec(), dtype.value_or(tensor.scalar_type()),
                   [tensor = tensor] { return tensor; }});
  }
  return all;
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       std::optional<at::ScalarType> dtype) {
  write_safetensors(path, to_write(tensors, dtype));
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<TensorToWrite>& tensors) {
  json::object header;
  header["__metadata__"] = json::object{{"format", "pt"}};
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t bytes = bytes_of(tensor);
    json::object& entry = header[tensor.name].emplace_object();
    entry["dtype"] = safetensors_dtype(tensor.dtype);
    entry["shape"] = json::value_from(tensor.shape);
    entry["data_offsets"] = json::array{offset, offset + bytes};
    offset += bytes;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start at multiples of eight bytes

  PendingFile file(path);
  const uint64_t length = text.size();
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const TensorToWrite& tensor : tensors) {
    const at::ScalarType stored = tensor.dtype;
    // A tensor elsewhere comes here whole: small copies from a GPU cost more than their bytes.
    const Tensor flat = tensor.bring().detach().cpu().contiguous().view({-1});
    check(flat.sizes() == at::IntArrayRef{c10::multiply_integers(tensor.shape)},
          "a tensor has the shape that was said");
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
