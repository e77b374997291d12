#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/json.h"
#include "core/regular_file.h"
#include "model/safetensors.h"

namespace slime::model {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr int64_t kMaxDimension = int64_t{1} << 40;
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxTensorProblems = 20;
constexpr int64_t kBlockBytes = 4 << 20;  // converted at a time

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};
constexpr std::array kDtypes = {
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"F16", at::kHalf},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F64", at::kDouble},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
};

/// One entry of the header; returns what is wrong with it, or nothing.
std::string parse_entry(const json::value& value, uint64_t data_begin, uint64_t file_size,
                        StoredTensor& out) {
  const json::object* entry = value.if_object();
  if (entry == nullptr) return "must be an object";
  const json::value* dtype = entry->if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) return "has no dtype";
  const auto known = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& d) {
    return d.name == std::string_view(dtype->get_string());
  });
  if (known == kDtypes.end()) return fmt::format("has the unknown dtype {}", json_text(*dtype));
  out.dtype = known->dtype;

  const json::value* shape = entry->if_contains("shape");
  if (shape == nullptr || !shape->is_array() || shape->get_array().size() > kMaxDimensions)
    return "has no valid shape";
  uint64_t bytes = c10::elementSize(out.dtype);
  for (const json::value& size : shape->get_array()) {
    json::error_code error;
    const auto number = size.is_number() ? size.to_number<int64_t>(error) : -1;
    if (error || number < 0 || number > kMaxDimension) return "has no valid shape";
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(number), &bytes))
      return "is larger than any file";
    out.shape.push_back(number);
  }

  const json::value* offsets = entry->if_contains("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2)
    return "has no data_offsets";
  std::array<uint64_t, 2> range{};
  for (size_t i = 0; i < 2; ++i) {
    const json::value& number = offsets->get_array()[i];
    json::error_code error;
    if (number.is_number()) range[i] = number.to_number<uint64_t>(error);
    if (!number.is_number() || error) return "has no valid data_offsets";
  }
  if (range[1] < range[0] || range[1] - range[0] != bytes) {
    return fmt::format("has {} bytes of data_offsets but its shape and dtype need {}",
                       range[1] < range[0] ? 0 : range[1] - range[0], bytes);
  }
  if (range[1] > file_size - data_begin) {
    return fmt::format("ends at byte {} of the data, but the file holds {}: it is truncated",
                       range[1], file_size - data_begin);
  }
  out.begin = data_begin + range[0];
  out.end = data_begin + range[1];
  return {};
}

}  // namespace

std::string safetensors_dtype(at::ScalarType dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) return std::string(known.name);
  }
  throw ConfigError(fmt::format("safetensors has no name for {}", c10::toString(dtype)));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      file_(open_regular_file(
          path, "; a checkpoint needs one for each shard: raise the hard limit (ulimit -Hn)")) {
  parse_header();
}

void SafetensorsFile::parse_header() {
  const std::string where = path_.string();
  uint64_t length = 0;
  if (file_.num_bytes < sizeof(length))
    throw ConfigError(where + ": too short for a safetensors file");
  read_bytes(&length, 0, sizeof(length));
  if (length > kMaxHeaderBytes || length > file_.num_bytes - sizeof(length)) {
    throw ConfigError(
        fmt::format("{}: the header claims {} bytes, the file has {}: truncated or not safetensors",
                    where, length, file_.num_bytes - sizeof(length)));
  }
  std::string text(length, '\0');
  read_bytes(text.data(), sizeof(length), length);
  const json::value header = parse_json(text, where + ", header");
  if (!header.is_object()) throw ConfigError(where + ": the header must be a JSON object");

  std::vector<std::string> problems;
  const uint64_t data_begin = sizeof(length) + length;
  std::vector<std::pair<StoredTensor, std::string>> by_place;
  for (const auto& member : header.get_object()) {
    const std::string name(member.key());
    if (name == "__metadata__") {
      if (const json::object* metadata = member.value().if_object()) {
        for (const auto& pair : *metadata) {
          if (pair.value().is_string())
            metadata_[pair.key()] = std::string(pair.value().get_string());
        }
      }
      continue;
    }
    StoredTensor tensor;
    const std::string problem = parse_entry(member.value(), data_begin, file_.num_bytes, tensor);
    if (!problem.empty()) {
      problems.push_back(fmt::format("{}: tensor {} {}", where, name, problem));
      if (problems.size() >= kMaxTensorProblems) break;
      continue;
    }
    by_place.emplace_back(tensor, name);
    tensors_.emplace(name, std::move(tensor));
  }
  std::sort(by_place.begin(), by_place.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  uint64_t next = data_begin;
  for (const auto& [tensor, name] : by_place) {
    if (!problems.empty()) break;  // a bad entry leaves a hole of its own
    if (tensor.begin < next)
      problems.push_back(fmt::format("{}: tensor {} overlaps another", where, name));
    if (tensor.begin > next) {
      problems.push_back(fmt::format("{}: {} bytes before tensor {} belong to none", where,
                                     tensor.begin - next, name));
    }
    next = tensor.end;
  }
  if (problems.empty() && next != file_.num_bytes) {
    problems.push_back(fmt::format("{}: {} bytes after the last tensor belong to none", where,
                                   file_.num_bytes - next));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

void SafetensorsFile::read_bytes(void* out, uint64_t offset, uint64_t size) const {
  auto* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got =
        ::pread(file_.descriptor.get(), to, std::min<uint64_t>(size, uint64_t{1} << 30),
                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw ConfigError(
          fmt::format("{}: cannot be read: {}", path_.string(), std::strerror(errno)));
    if (got == 0) throw ConfigError(fmt::format("{}: ends at byte {}", path_.string(), offset));
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
}

void SafetensorsFile::read(const StoredTensor& tensor, const Slices& slices, Tensor out) const {
  check(out.is_contiguous(), "safetensors are read into contiguous memory");
  if (!out.is_cpu()) {
    const Tensor on_host = at::empty(out.sizes(), out.options().device(at::kCPU));
    read(tensor, slices, on_host);
    out.copy_(on_host);
    return;
  }
  check(out.sizes() == slices.shape(tensor.shape),
        "the destination of a read has the shape of the slices");
  const auto width = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const Tensor flat = out.view({-1});
  const bool converts = out.scalar_type() != tensor.dtype;
  Tensor block;
  const int64_t all = static_cast<int64_t>(tensor.end - tensor.begin) / width;
  slices.for_each_run(tensor.shape, {0, all}, [&](const Slices::Run& run) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t size =
          converts ? std::min(run.size - done, kBlockBytes / width) : run.size - done;
      const uint64_t offset =
          tensor.begin + static_cast<uint64_t>((run.whole_begin + done) * width);
      Tensor target = flat.narrow(0, run.own_begin + done, size);
      if (converts) {
        if (!block.defined() || block.size(0) < size) block = at::empty({size}, tensor.dtype);
        read_bytes(block.data_ptr(), offset, static_cast<uint64_t>(size * width));
        target.copy_(block.narrow(0, 0, size));
      } else {
        read_bytes(target.data_ptr(), offset, static_cast<uint64_t>(size * width));
      }
      done += size;
    }
  });
}

void SafetensorsFile::read_stored(const StoredTensor& tensor, int64_t begin, int64_t size,
                                  void* out) const {
  const uint64_t width = c10::elementSize(tensor.dtype);
  const uint64_t offset = tensor.begin + static_cast<uint64_t>(begin) * width,
                 bytes = static_cast<uint64_t>(size) * width;
  check(offset + bytes <= tensor.end, "elements that are read are of their tensor");
  read_bytes(out, offset, bytes);
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw ConfigError(fmt::format("{}: has no tensor {}", path_.string(), name));
  Tensor out = at::empty(found->second.shape, found->second.dtype);
  read(found->second, {}, out);
  return out;
}

/// By a file in memory: one reader checks what all files say.
NamedTensors tensors_of_safetensors(std::string_view bytes) {
  const int descriptor = ::memfd_create("safetensors", MFD_CLOEXEC);
  if (descriptor < 0)
    throw ConfigError(fmt::format("no room for the tensors: {}", std::strerror(errno)));
  const std::unique_ptr<const int, void (*)(const int*)> closes(
      &descriptor, [](const int* open) { ::close(*open); });
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw ConfigError(fmt::format("no room for the tensors: {}", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  const SafetensorsFile file(fmt::format("/proc/self/fd/{}", descriptor));
  NamedTensors tensors;
  for (const auto& [name, stored] : file.tensors()) tensors.emplace_back(name, file.read(name));
  return tensors;
}

}  // namespace slime::model
