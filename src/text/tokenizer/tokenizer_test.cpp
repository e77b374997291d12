#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#include "core/error.h"

namespace slime::text {
namespace {

/// A tokenizer.json with tokens a, b, ab and the given further members.
std::string file_with(const std::string& members) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})" +
         (members.empty() ? "" : ", " + members) + "}";
}

std::string error_of(const std::string& tokenizer_json, const std::string& config = "") {
  try {
    Tokenizer::from_json(tokenizer_json, config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Tokenizer, UnknownPartsAreNamedAllAtOnce) {
  const std::string error =
      error_of(file_with(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}]},
      "pre_tokenizer": {"type": "UnicodeScripts"}, "decoder": {"type": "CTC"}, "post_processor": {"type": "BertProcessing"})"));
  for (const char* part :
       {"normalizer.normalizers[0].type is \"Nmt\"", "pre_tokenizer.type is \"UnicodeScripts\"",
        "decoder.type is \"CTC\"", "post_processor.type is \"BertProcessing\""}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
  }
}

TEST(Tokenizer, AModelThatIsNotBpeIsRefused) {
  EXPECT_NE(
      error_of(R"({"model": {"type": "Unigram", "vocab": []}})").find("model.type is \"Unigram\""),
      std::string::npos);
}

TEST(Tokenizer, ContradictionsInTheModelAreRefused) {
  for (const char* model :
       {R"({"vocab": {"a": 0}, "merges": ["a b"]})", R"({"vocab": {"a": 0, "b": 0}, "merges": []})",
        R"({"vocab": {"a": -1}, "merges": []})", R"({"vocab": {"a": 99999999}, "merges": []})",
        R"({"vocab": {"a": 0}, "merges": ["a b c"]})", R"({"vocab": {"a": 0}, "merges": [["a"]]})",
        R"({"vocab": [], "merges": []})", R"({"vocab": {"a": 0}})",
        R"({"vocab": {"a": 0}, "merges": [], "unk_token": "x"})",
        R"({"vocab": {"a": 0}, "merges": [], "dropout": 0.1})"}) {
    EXPECT_NE(error_of(std::string("{\"model\": ") + model + "}"), "") << model;
  }
}

TEST(Tokenizer, AnOrderOfDecodersThatDoesNotStreamIsRefused) {
  EXPECT_NE(error_of(file_with(R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})"))
                .find("order"),
            std::string::npos);
}

TEST(Tokenizer, ReplacementsThatMultiplyATextAreStopped) {
  std::string steps;
  for (int i = 0; i < 20; ++i) {
    steps += std::string(i == 0 ? "" : ",") +
             R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"})";
  }
  const auto tokenizer = Tokenizer::from_json(
      file_with(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}"), "");
  EXPECT_THROW(tokenizer->encode("a"), ConfigError);
}

TEST(Tokenizer, TheConfigurationsSpecialTokensAreAddedAndNamed) {
  const auto tokenizer =
      Tokenizer::from_json(file_with(""), R"({"bos_token": "<s>", "eos_token": {"content": "b"},
      "pad_token": null, "added_tokens_decoder": {"7": {"content": "<x>", "special": true}}})");
  EXPECT_EQ(tokenizer->id_of("<s>"), 8);  // behind everything known
  EXPECT_EQ(tokenizer->id_of("b"), 1);    // the model's own token
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(tokenizer->special_tokens(),
            (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "b"}}));
  EXPECT_TRUE(tokenizer->is_special(7));
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_FALSE(tokenizer->is_special(1 << 30));
  EXPECT_EQ(tokenizer->encode("ab<x>"),
            (std::vector<TokenId>{0, 1, 7}));  // "b" is now cut out first
  EXPECT_EQ(tokenizer->encode("ab<x>", {.split_special_tokens = true}), (std::vector<TokenId>{2}));
}

TEST(Tokenizer, IdsOutsideTheVocabularyDecodeToNothing) {
  const auto tokenizer = Tokenizer::from_json(file_with(R"("decoder": {"type": "Fuse"})"), "");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{2, -5, 3, 2147483647, 0}, false), "aba");
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
  EXPECT_EQ(tokenizer->token_bytes(3), "");
  EXPECT_EQ(tokenizer->id_of("zz"), std::nullopt);
}

TEST(Tokenizer, BytesThatAreNoUtf8AreReadAsReplacementCharacters) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "\ufffd": 1}, "merges": []}, "decoder": {"type": "Fuse"}})",
      "");
  EXPECT_EQ(tokenizer->encode("a\xE4\xBD"
                              "a\xFF"),
            (std::vector<TokenId>{0, 1, 0, 1}));
}

TEST(Tokenizer, ThreadsAgree) {
  const auto tokenizer = Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_qwen");
  const std::string text = "The old mill's boats, 1987 of them, run past HTTPServer names.";
  const auto expected = tokenizer->encode(text);
  std::vector<std::jthread> threads;
  std::array<bool, 4> same{};
  for (bool& result : same) {
    threads.emplace_back([&] {
      result = true;
      for (int i = 0; i < 50; ++i) result = result && tokenizer->encode(text) == expected;
    });
  }
  threads.clear();
  EXPECT_EQ(same, (std::array<bool, 4>{true, true, true, true}));
}

TEST(Tokenizer, LongTextsWithoutACutGoThroughAndComeBack) {
  for (const char* name : {"tiny_qwen", "tiny_gpt_oss", "tiny_gemma", "tiny_smollm"}) {
    const auto tokenizer =
        Tokenizer::load(std::string(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/") + name);
    for (const std::string& text : {std::string(100000, 'a'), std::string(100000, ' '),
                                    std::string(100000, '\n'), std::string(100000, 'A')}) {
      const auto ids = tokenizer->encode(text);
      EXPECT_LE(ids.size(), text.size());
      EXPECT_EQ(tokenizer->decode(ids, false), text) << name;
    }
  }
}

/// A directory with a tiktoken file of the 256 bytes, "th", "the" and "he", and a configuration.
class TiktokenDirectory {
 public:
  explicit TiktokenDirectory(const std::string& config, const std::string& extra_line = "") {
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("tiktoken_" + std::to_string(::getpid()) + "_" + std::to_string(count_++));
    std::filesystem::create_directories(path_);
    std::ofstream ranks(path_ / "tiktoken.model");
    for (int byte = 0; byte < 256; ++byte)
      ranks << base64(static_cast<unsigned>(byte)) << ' ' << byte << '\n';
    ranks << "dGg= 256\ndGhl 257\naGU= 258\n" << extra_line;
    std::ofstream(path_ / "tokenizer_config.json") << config;
  }
  ~TiktokenDirectory() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  static std::string base64(unsigned byte) {
    constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
  }
  static inline int count_ = 0;
  std::filesystem::path path_;
};

TEST(TiktokenFile, MergesByTheRankOfTheUnion) {
  const TiktokenDirectory directory(
      R"({"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]",
      "added_tokens_decoder": {"259": {"content": "[BOS]", "special": true}}})");
  const auto tokenizer = Tokenizer::load(directory.path());
  EXPECT_EQ(tokenizer->encode("the then"), (std::vector<TokenId>{257, ' ', 257, 'n'}));
  EXPECT_EQ(tokenizer->encode("he [BOS]"), (std::vector<TokenId>{258, ' ', 259}));
  EXPECT_EQ(tokenizer->vocab_size(), 259 + 256);
  EXPECT_EQ(tokenizer->id_of("<|reserved_token_260|>"), 260);
  EXPECT_EQ(tokenizer->token_bytes(257), "the");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{259, 257, 0xC3, 0xA9}, true), "the\u00E9");
}

TEST(TiktokenFile, TheFirstQwenHasItsTokensBehindTheRanks) {
  const TiktokenDirectory directory(R"({"tokenizer_class": "QWenTokenizer"})");
  const auto tokenizer = Tokenizer::load(directory.path());
  EXPECT_EQ(tokenizer->id_of("<|im_start|>"), 260);
  EXPECT_EQ(tokenizer->id_of("<|extra_204|>"), 259 + 3 + 204);
  EXPECT_EQ(tokenizer->encode("e\u0301"), (std::vector<TokenId>{0xC3, 0xA9}));  // NFC
}

TEST(TiktokenFile, APatternOfTheConfigurationWins) {
  const TiktokenDirectory directory(R"({"tokenizer_class": "Whatever", "pat_str": "t|."})");
  EXPECT_EQ(Tokenizer::load(directory.path())->encode("the"),
            (std::vector<TokenId>{'t', 'h', 'e'}));
}

TEST(TiktokenFile, AClassWithoutAKnownPatternIsRefused) {
  const TiktokenDirectory directory(R"({"tokenizer_class": "Whatever"})");
  EXPECT_THROW(Tokenizer::load(directory.path()), ConfigError);
}

TEST(TiktokenFile, ABrokenLineIsNamed) {
  for (const char* line :
       {"dGg=\n", "!!!! 300\n", "eHg= 300x\n", "eHg= -1\n", "eHg= 257\n", "dGhl 300\n"}) {
    const TiktokenDirectory directory("{}", line);
    EXPECT_THROW(Tokenizer::load(directory.path()), ConfigError) << line;
  }
}

TEST(StreamDetokenizer, HoldsBackHalfACharacterAndGivesUpOnAnImpossibleOne) {
  const TiktokenDirectory directory("{}");
  const auto tokenizer = Tokenizer::load(directory.path());
  StreamDetokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push(0xBD), "");
  EXPECT_EQ(detokenizer.push(0xA0), "\u4F60");
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push('a'),
            "\uFFFD"
            "a");
  EXPECT_EQ(detokenizer.push(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

}  // namespace
}  // namespace slime::text
