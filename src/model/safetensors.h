#pragma once

/// The safetensors file format: 8 bytes of little-endian header length, a JSON header, raw tensors.
///
///   {"model.norm.weight": {"dtype": "BF16", "shape": [576], "data_offsets": [0, 1152]},
///   "__metadata__": {"format": "pt"}}
///
/// Everything a header says is checked against the file before a byte is read through it: lengths,
/// overlaps, holes, shapes. Nothing is mapped, so a file that shrinks while it is read is an error
/// and not a crash.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/regular_file.h"
#include "core/tensor.h"
#include "model/slices.h"

namespace slime::model {

/// One tensor as the header describes it.
struct StoredTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

/// An open file, read-only.
class SafetensorsFile final {
 public:
  /// Throws ConfigError naming the file and what is wrong with it: all problems of its header.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Reads slices of a tensor into `out`, contiguous and of their shape, converting to its
  /// precision. Only what is in the slices is read. Safe from several threads. Throws
  /// ConfigError when the file ends early.
  void read(const StoredTensor& tensor, const Slices& slices, Tensor out) const;
  /// Elements [begin, begin + size) of a tensor, as they are stored. Safe from several threads, and throws so too.
  void read_stored(const StoredTensor& tensor, int64_t begin, int64_t size, void* out) const;
  /// A whole tensor in its stored precision.
  Tensor read(const std::string& name) const;

 private:
  void parse_header();
  void read_bytes(void* out, uint64_t offset, uint64_t size) const;

  std::filesystem::path path_;
  RegularFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// All tensors of a file whose bytes are here, with their stored precision. Throws ConfigError as the file does.
NamedTensors tensors_of_safetensors(std::string_view bytes);

/// A tensor that is brought when it is its turn to be written, so that one that lies elsewhere need not
/// be here with all the others.
struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype;           // in the file
  std::function<Tensor()> bring;  // any strides and device
};

uint64_t bytes_of(const TensorToWrite& tensor);

/// Writes a file of these tensors, in their order. Written to PATH.tmp, synced, renamed over PATH; the
/// caller syncs the directory (sync_directory) once for all files. Throws std::system_error, for
/// example on a full disk, and leaves PATH as it was.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<TensorToWrite>& tensors);

/// The same of tensors that are here, converted to `dtype` when given.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       std::optional<at::ScalarType> dtype = {});
/// Tensors that are here; `dtype`: what they become in a file, their own when not given.
std::vector<TensorToWrite> to_write(const NamedTensors& tensors,
                                    std::optional<at::ScalarType> dtype = {});

/// The same for text, such as config.json.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Makes renames in this directory durable.
void sync_directory(const std::filesystem::path& directory);

/// "BF16" for at::kBFloat16. Throws ConfigError for a precision the format lacks.
std::string safetensors_dtype(at::ScalarType dtype);

}  // namespace slime::model
