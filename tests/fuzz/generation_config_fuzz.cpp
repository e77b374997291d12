// Bytes as generation_config.json: settings of requests and ids that end a response, or a
// ConfigError.

#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "engine/http/served_model.h"
#include "fuzz_folder.h"
#include "model/config.h"

using namespace slime;

namespace {

/// A model directory whose config.json is a good one.
struct ModelFolder : FuzzFolder {
  ModelFolder() {
    write("config.json",
          R"({"model_type": "qwen3", "hidden_size": 8, "intermediate_size": 8, "vocab_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
              "head_dim": 8, "max_position_embeddings": 8, "eos_token_id": 1})");
    model::read_model_config(path());
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const ModelFolder folder;
  folder.write("generation_config.json", {reinterpret_cast<const char*>(data), size});
  try {
    engine::sampling_defaults_of(folder.path());
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  try {
    model::read_model_config(folder.path());
  } catch (const ConfigError&) {
  }
  std::filesystem::remove(folder.path() / "generation_config.json");
  return 0;
}
