#include "setup/vocabularies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"

namespace slime::setup {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Folders with a configuration of `rows` ids; `words` have the ids from 0 on, "": no tokenizer.
class VocabulariesTest : public ::testing::Test {
 protected:
  std::string folder(const std::string& name, int rows, const std::string& words) {
    const fs::path path = fs::path(testing::TempDir()) / "vocabularies" / name;
    fs::remove_all(path);
    fs::create_directories(path);
    std::ofstream(path / "config.json")
        << R"({"model_type":"llama","hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,)"
        << R"("num_attention_heads":2,"max_position_embeddings":64,"vocab_size":)" << rows << "}";
    if (!words.empty()) std::ofstream(path / "tokenizer.json") << tokenizer(words);
    return path.string();
  }
  static std::string tokenizer(const std::string& words) {
    std::string vocab;
    for (std::size_t i = 0; i < words.size(); ++i)
      vocab += (i > 0 ? ",\"" : "\"") + words.substr(i, 1) + "\":" + std::to_string(i);
    return R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,)"
           R"("post_processor":null,"decoder":null,"model":{"type":"BPE","merges":[],"vocab":{)" +
           vocab + "}}}";
  }
  std::string problem(const std::string& actor, const std::string& teacher) {
    config::RunConfig config;
    config.hf_checkpoint = actor;
    config.use_opd = true;
    config.opd_type = "megatron";
    config.opd_teacher_load = teacher;
    try {
      check_vocabularies(config, *text::Tokenizer::load(actor), other_models(config));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  }
};

TEST_F(VocabulariesTest, OfATeacherAreTheActors) {
  const std::string actor = folder("actor", 4, "abcd");
  EXPECT_EQ(problem(actor, folder("same", 4, "abcd")), "none");
  EXPECT_EQ(problem(actor, folder("padded", 64, "abcd")), "none") << "rows without a token";
  EXPECT_THAT(problem(actor, folder("other", 4, "abdc")),
              AllOf(HasSubstr("--opd-teacher-load"), HasSubstr("another vocabulary"),
                    HasSubstr("its id 2 is ")));
  EXPECT_THAT(problem(actor, folder("fewer", 3, "abcd")),
              HasSubstr("has 3 ids, the actor's tokens need 4"));
}

TEST_F(VocabulariesTest, WithoutATokenizerTheSizesAreCompared) {
  const std::string actor = folder("actor", 4, "abcd");
  EXPECT_EQ(problem(actor, folder("bare", 4, "")), "none");
  EXPECT_THAT(problem(actor, folder("larger", 5, "")), HasSubstr("cannot be seen"));
}

}  // namespace
}  // namespace slime::setup
