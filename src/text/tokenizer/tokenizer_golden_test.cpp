/// Ids, texts and stream pieces of published tokenizers against what `tokenizers` and
/// `transformers` gave for them. The large ones are not in this repository (CONTRIBUTING.md).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "text/published_tokenizers_for_tests.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<TokenId> ids_of(const json::value& value) {
  return json::value_to<std::vector<TokenId>>(value);
}

/// `key` of a case, or what its absence stands for.
const json::value& member_or(const json::object& object, std::string_view key,
                             const json::value& otherwise) {
  const json::value* found = object.if_contains(key);
  return found == nullptr ? otherwise : *found;
}

/// The same tokens, whose places follow one another from the text's begin to its end.
void expect_places(const Tokenizer& tokenizer, const std::string& text,
                   const std::vector<TokenId>& ids) {
  std::vector<TokenId> placed_ids;
  uint32_t at = 0;
  for (const PlacedToken& token : tokenizer.encode_placed(text)) {
    placed_ids.push_back(token.id);
    EXPECT_EQ(token.begin, at);
    EXPECT_GE(token.end, token.begin);
    at = token.end;
  }
  EXPECT_EQ(placed_ids, ids);
  if (!ids.empty()) {
    EXPECT_EQ(at, text.size());
  }
}

void expect_encoding(const Tokenizer& tokenizer, const json::object& golden) {
  const std::string text(golden.at("text").as_string());
  SCOPED_TRACE(text.substr(0, 200));
  const json::value& ids = golden.at("ids");
  EXPECT_EQ(tokenizer.encode(text), ids_of(ids));
  expect_places(tokenizer, text, ids_of(ids));
  EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}),
            ids_of(member_or(golden, "ids_with_special", ids)));
  EXPECT_EQ(tokenizer.encode(text, {.split_special_tokens = true}),
            ids_of(member_or(golden, "ids_special_as_text", ids)));
  const json::value& decoded = member_or(golden, "decoded", golden.at("text"));
  EXPECT_EQ(tokenizer.decode(ids_of(ids), false), decoded.as_string());
  EXPECT_EQ(tokenizer.decode(ids_of(ids), true),
            member_or(golden, "decoded_skip_special", decoded).as_string());
}

void expect_stream(const Tokenizer& tokenizer, const json::object& golden) {
  SCOPED_TRACE(golden.at("name").as_string());
  StreamDetokenizer detokenizer(tokenizer);
  std::string all;
  const std::vector<TokenId> ids = ids_of(golden.at("ids"));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = detokenizer.push(ids[i]);
    EXPECT_EQ(piece, golden.at("pieces").at(i).as_string()) << "piece " << i;
    all += piece;
  }
  const std::string rest = detokenizer.flush();
  EXPECT_EQ(rest, golden.at("flush").as_string());
  EXPECT_EQ(all + rest, tokenizer.decode(ids, false));
}

void expect_golden(const Tokenizer& tokenizer, const fs::path& golden_file) {
  const json::value golden = read_json_file(golden_file);
  ASSERT_FALSE(golden.at("encode").as_array().empty());
  for (const json::value& one : golden.at("encode").as_array())
    expect_encoding(tokenizer, one.as_object());
  for (const json::value& one : golden.at("stream").as_array())
    expect_stream(tokenizer, one.as_object());
}

class PublishedTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedTokenizer, GivesTheReferencesIdsTextsAndStreamPieces) {
  SLIME_NEEDS_PUBLISHED_TOKENIZER(GetParam());
  const fs::path folder = published_tokenizer(GetParam());
  const std::string tokenizer_json = unpacked(folder / "tokenizer.json.xz");
  if (tokenizer_json.empty()) GTEST_SKIP() << "xz is not installed";
  const auto tokenizer =
      Tokenizer::from_json(tokenizer_json, read_file(folder / "tokenizer_config.json"));
  expect_golden(*tokenizer, folder / "golden_tokenizer.json");
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer, ::testing::ValuesIn(kPublishedTokenizers),
                         [](const auto& info) { return info.param; });

class TinyTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyTokenizer, GivesTheReferencesIdsAndTexts) {
  const fs::path folder = fs::path(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers") / GetParam();
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer->special_tokens().at("eos_token"), "</s>");
  expect_golden(*tokenizer, folder / "golden_tokenizer.json");
}

INSTANTIATE_TEST_SUITE_P(All, TinyTokenizer,
                         ::testing::Values("tiny_qwen", "tiny_llama3", "tiny_gpt_oss",
                                           "tiny_tekken", "tiny_smollm", "tiny_gemma",
                                           "tiny_mistral", "tiny_metaspace"),
                         [](const auto& info) { return info.param; });

TEST(TiktokenFile, OfKimiGivesTiktokensIdsAndTexts) {
  const fs::path folder = SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_kimi";
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer->special_tokens().at("eos_token"), "[EOS]");
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->id_of("[EOS]")));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->id_of("<think>")));
  expect_golden(*tokenizer, folder / "golden_tokenizer.json");
}

/// What decoding gives where no decoder is set: the tokens of the vocabulary with spaces between them.
std::string joined(const json::object& vocabulary, const json::array& ids) {
  std::string text;
  for (const json::value& id : ids) {
    const auto entry = std::ranges::find(vocabulary, id, [](const auto& e) { return e.value(); });
    text += (text.empty() ? "" : " ") + std::string(entry->key());
  }
  return text;
}

TEST(TokenizerParts, EachNormalizerPreTokenizerAndDecoderGivesTheReferencesIdsAndTexts) {
  const json::value file =
      unpacked_json(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/parts.json.xz");
  const json::object& vocabulary = file.at("model").at("vocab").as_object();
  for (const json::value& row : file.at("rows").as_array()) {
    json::object tokenizer_json = row.at("parts").as_object();
    SCOPED_TRACE(json_text(tokenizer_json));
    tokenizer_json["model"] = file.at("model");
    const auto tokenizer = Tokenizer::from_json(json_text(tokenizer_json), "");
    const json::array &texts = file.at("texts").as_array(), &cases = row.at("encode").as_array();
    ASSERT_EQ(texts.size(), cases.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      json::object one = cases[i].as_object();
      one["text"] = texts[i];
      if (!one.contains("decoded")) one["decoded"] = joined(vocabulary, one.at("ids").as_array());
      expect_encoding(*tokenizer, one);
    }
  }
}

}  // namespace
}  // namespace slime::text
