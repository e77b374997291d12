#pragma once

/// A model directory in a shape of bench/gpu/workloads.json, with a tokenizer of bytes and a file of
/// prompts: what commands are measured with. It is gone with the object.

#include <cstdint>
#include <filesystem>

#include "bench/made_up_model.h"
#include "core/temporary_folder.h"

namespace slime::bench {

/// Writes such a model into a folder, which is made: with a tokenizer, and with weights in bfloat16 or without.
void write_made_up_model(const ShapeOptions& shape, const std::filesystem::path& folder,
                         bool has_weights);

struct MadeUpDirectoryOptions {
  ShapeOptions shape;
  bool has_weights = true;  // bfloat16; without them it is of use where they come from elsewhere
  int64_t prompts = 1;
  int64_t prompt_tokens = 256;
};

class MadeUpDirectory final {
 public:
  explicit MadeUpDirectory(const MadeUpDirectoryOptions& options);

  const std::filesystem::path& path() const { return root_.path(); }  // for other files too
  std::filesystem::path model() const { return path() / "model"; }
  std::filesystem::path prompts() const { return path() / "prompts.jsonl"; }

 private:
  TemporaryFolder root_{"slime-bench"};
};

}  // namespace slime::bench
