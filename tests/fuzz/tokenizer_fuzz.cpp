/// libFuzzer entry: a tokenizer.json from anyone, and texts through it.
///
///   cmake --preset fuzz && cmake --build --preset fuzz --target tokenizer_fuzz
///   build/fuzz/tokenizer_fuzz CORPUS tests/fixtures/tokenizers/tiny_qwen
///
/// Input: a line of text to encode, then the file. Without a second line the whole input is text
/// for a fixed tokenizer that holds one of every step.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kFixed = R"({
  "added_tokens": [{"id": 9, "content": "<s>", "special": true, "lstrip": true},
                   {"id": 10, "content": "ab", "single_word": true, "normalized": true, "rstrip": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"},
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Strip", "strip_left": true, "strip_right": true}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "Punctuation"},
    {"type": "Split", "pattern": {"Regex": "[\\p{L}&&[^x]]+| ?\\S"}, "behavior": "MergedWithNext", "invert": false},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1}]},
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}},
  "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "?", "merges": ["a b", "_ a"],
    "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "_": 4, "_a": 5, "<0xE4>": 6, "<0xBD>": 7, "<0xA0>": 8}}})";

/// Tokens with places follow one another, and without a seam they are those of encode().
void place(const slime::text::Tokenizer& tokenizer, std::string_view text) {
  try {
    const std::vector<uint32_t> seams = {1, static_cast<uint32_t>(text.size() / 2)};
    tokenizer.encode_placed(text, seams);
    const auto placed = tokenizer.encode_placed(text);
    const auto ids = tokenizer.encode(text);
    if (placed.size() != ids.size()) std::abort();
    uint32_t at = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (placed[i].id != ids[i] || placed[i].begin < at || placed[i].end < placed[i].begin)
        std::abort();
      at = placed[i].end;
    }
  } catch (const slime::ConfigError&) {  // no UTF-8, or tokens that cannot be laid over the text
  }
}

void exercise(const slime::text::Tokenizer& tokenizer, std::string_view text) {
  place(tokenizer, text);
  const auto ids = tokenizer.encode(text, {.add_special_tokens = true});
  tokenizer.encode(text, {.split_special_tokens = true});
  tokenizer.decode(ids, true);
  slime::text::StreamDetokenizer detokenizer(tokenizer);
  for (const slime::TokenId id : ids) detokenizer.push(id);
  detokenizer.flush();
  for (const char byte : text) detokenizer.push(byte);  // any ids at all
  detokenizer.flush();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t newline = input.find('\n');
  try {
    if (newline == input.npos) {
      static const auto fixed = slime::text::Tokenizer::from_json(kFixed, "");
      exercise(*fixed, input);
    } else {
      const auto tokenizer = slime::text::Tokenizer::from_json(input.substr(newline + 1), "");
      exercise(*tokenizer, input.substr(0, newline));
    }
  } catch (const slime::ConfigError&) {  // refusing a file is what we want
  }
  return 0;
}
