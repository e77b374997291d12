/// libFuzzer entry: a tiktoken file from anyone, and texts through it.
///
///   cmake --preset fuzz && cmake --build --preset fuzz --target tiktoken_file_fuzz
///   build/fuzz/tiktoken_file_fuzz CORPUS
///
/// Input: a line of text to encode, a line that is tokenizer_config.json, then the file.

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/error.h"
#include "text/tokenizer/tokenizer.h"

namespace {

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view text = take_line(rest), config = take_line(rest);
  try {
    const auto tokenizer = slime::text::Tokenizer::from_tiktoken(rest, config);
    tokenizer->decode(tokenizer->encode(text, {.add_special_tokens = true}), true);
    tokenizer->encode(text, {.split_special_tokens = true});
    slime::text::StreamDetokenizer detokenizer(*tokenizer);
    for (const char byte : text) detokenizer.push(byte);  // any ids at all
    detokenizer.flush();
  } catch (const slime::ConfigError&) {  // refusing a file is what we want
  }
  return 0;
}
