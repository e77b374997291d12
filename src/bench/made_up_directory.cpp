#include "bench/made_up_directory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <system_error>

#include "bench/workload.h"
#include "core/json.h"
#include "model/save.h"

namespace slime::bench {
namespace fs = std::filesystem;
namespace {

/// Spellings of the 256 bytes in byte-level BPE: printable ones are themselves, the others follow
/// at 256.
json::object byte_vocabulary() {
  json::object vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = is_printable ? byte : next++;
    std::string spelling;
    if (code < 128) {
      spelling = static_cast<char>(code);
    } else {
      spelling = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary[spelling] = byte;
  }
  return vocabulary;
}

json::object byte_tokenizer() {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", json::array{}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           json::object{{"type", "BPE"}, {"vocab", byte_vocabulary()}, {"merges", json::array{}}}}};
}

}  // namespace

MadeUpDirectory::MadeUpDirectory(const MadeUpDirectoryOptions& options)
    : root_(fs::temp_directory_path() / fmt::format("slime-bench-{}", ::getpid())) {
  const model::ModelConfig shape = read_shape(options.shape);
  fs::create_directories(model());
  if (options.has_weights) {
    const auto network = model::make_uniform_network(
        shape, {.weights = at::kBFloat16, .activations = at::kFloat}, kTrainingWeightBound);
    model::save_network(*network, model());
  } else {
    std::ofstream(model() / "config.json")
        << json_text(read_workloads(options.shape.file).models.at(options.shape.model));
  }
  std::ofstream(model() / "tokenizer.json") << json_text(byte_tokenizer());
  std::ofstream file(prompts());
  for (int64_t i = 0; i < options.prompts; ++i) {
    std::string text = fmt::format("Prompt {}: ", i);
    while (static_cast<int64_t>(text.size()) < options.prompt_tokens)
      text += static_cast<char>('a' + (i * 7 + static_cast<int64_t>(text.size()) * 13) % 26);
    file << json_text(json::object{{"input", text}}) << "\n";
  }
}

MadeUpDirectory::~MadeUpDirectory() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

}  // namespace slime::bench
