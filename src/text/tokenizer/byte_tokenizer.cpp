#include "text/tokenizer/byte_tokenizer.h"

#include <string>

#include "text/tokenizer/byte_alphabet.h"

namespace slime::text {
namespace {

json::object spelled_vocabulary() {
  json::object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_spelling(std::string(1, static_cast<char>(byte)), spelling);
    vocabulary[spelling] = byte;
  }
  return vocabulary;
}

}  // namespace

json::object byte_tokenizer(std::span<const std::string_view> added, std::size_t specials) {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  json::array tokens;
  for (std::size_t i = 0; i < added.size(); ++i)
    tokens.push_back(json::object{{"id", 256 + i},
                                  {"content", added[i]},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", i < specials}});
  return {
      {"version", "1.0"},
      {"added_tokens", tokens},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       json::object{{"type", "BPE"}, {"vocab", spelled_vocabulary()}, {"merges", json::array{}}}}};
}

}  // namespace slime::text
