#include "hub/names_like.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace slime::hub {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kNames{"HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen3-0.6B",
                                      "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B"};

TEST(NamesLike, TheBeginningCountsMoreThanTheMiddleAndThatMoreThanASlip) {
  EXPECT_THAT(names_like("SmolLM", kNames), ElementsAre("HuggingFaceTB/SmolLM2-135M-Instruct"));
  EXPECT_THAT(names_like("qwen3", kNames),
              ElementsAre("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B"));
  EXPECT_THAT(names_like("135m", kNames), ElementsAre("HuggingFaceTB/SmolLM2-135M-Instruct"));
  EXPECT_THAT(names_like("SmoLLM", kNames), ElementsAre("HuggingFaceTB/SmolLM2-135M-Instruct"));
  EXPECT_THAT(names_like("Qwen/Qwen3-06B", kNames), testing::Contains("Qwen/Qwen3-0.6B"));
}

TEST(NamesLike, AnotherWordIsLikeNone) {
  EXPECT_THAT(names_like("my-model", kNames), IsEmpty());
  EXPECT_THAT(names_like("q", kNames), IsEmpty());
  EXPECT_THAT(names_like("Qwen/Qwen3-0.6B", kNames), IsEmpty()) << "it is right";
  EXPECT_THAT(names_like("Qwen/Qwen3-0.6B@v1", kNames), IsEmpty());
}

TEST(NamesLike, GuessesComeFromTheFolderTheCacheAndTheKnownNames) {
  const fs::path root = fs::path(testing::TempDir()) / "names_like";
  fs::remove_all(root);
  fs::create_directories(root / "hub" / "models--mine--SmolLM-own");
  fs::create_directories(root / "hub" / "datasets--mine--smollm-data");
  EXPECT_THAT(cached_models(root / "hub"), ElementsAre("mine/SmolLM-own"));
  EXPECT_EQ(model_guess("SmolLM", root / "hub"),
            "; did you mean mine/SmolLM-own, HuggingFaceTB/SmolLM2-135M-Instruct or "
            "HuggingFaceTB/SmolLM2-360M-Instruct?");
  fs::create_directories(root / "SmolLM2");
  fs::create_directories(root / "SmolLM-notes");
  std::ofstream(root / "SmolLM2" / "config.json") << "{}";
  EXPECT_EQ(model_guess((root / "SmolLM").string(), root / "hub"),
            "; did you mean " + (root / "SmolLM2").string() + "?")
      << "a path stands for no name, and a folder without config.json is no model";
  EXPECT_EQ(model_guess("/nowhere", root / "hub"), "");
  EXPECT_EQ(model_guess("SmolLM", root / "no-cache").find("mine"), std::string::npos);
}

TEST(NamesLike, TheKnownNamesAreOnThePageOfNames) {
  std::ifstream file(std::string(SLIME_SOURCE_DIR) + "/docs/names.md");
  std::stringstream page;
  page << file.rdbuf();
  ASSERT_FALSE(known_models().empty());
  for (const std::string_view name : known_models())
    EXPECT_THAT(page.str(), HasSubstr("`" + std::string(name) + "`"));
}

}  // namespace
}  // namespace slime::hub
