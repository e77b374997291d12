// Bytes as tokenizer_config.json beside a small tokenizer: names of special tokens and chat
// templates that work, or a ConfigError.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "fuzz_folder.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

using namespace slime;

namespace {

constexpr std::string_view kTokenizer =
    R"({"version": "1.0", "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const FuzzFolder folder;
  const std::string_view config(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = text::Tokenizer::from_json(kTokenizer, config);
    tokenizer->decode(tokenizer->encode("<s>abba</s>", {.add_special_tokens = true}), true);
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  folder.write("tokenizer_config.json", config);
  try {
    text::ChatTemplate::load(folder.path()).names();
  } catch (const ConfigError&) {
  }
  return 0;
}
