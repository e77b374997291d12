// Bytes as model.safetensors.index.json beside two shards: where each tensor is, or a ConfigError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "fuzz_folder.h"
#include "model/model_files.h"

using namespace slime;

namespace {

/// A file with one float32 tensor of one element.
std::string shard(std::string_view tensor) {
  const std::string header =
      "{\"" + std::string(tensor) + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(4, '\0');
}

struct ShardFolder : FuzzFolder {
  ShardFolder() {
    write("1.safetensors", shard("a"));
    write("2.safetensors", shard("b"));
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const ShardFolder folder;
  folder.write("model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  try {
    const model::ModelFiles files(folder.path());
    for (const auto& [name, place] : files.tensors())
      if (place.tensor->shape.size() != 1) std::abort();
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  return 0;
}
