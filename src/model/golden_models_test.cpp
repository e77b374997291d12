#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/families/family.h"
#include "model/golden_models_for_tests.h"
#include "model/model_files.h"

namespace slime::model {
namespace {

TEST(GoldenModels, AreTheFoldersOfTheFixtures) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(golden_models::directory(""))) {
    if (std::filesystem::exists(entry.path() / "config.json"))
      folders.push_back(entry.path().filename());
  }
  std::ranges::sort(folders);
  EXPECT_THAT(golden_models::all(), ::testing::ElementsAreArray(folders))
      << "the table is in src/model/golden_models_for_tests.h";
}

TEST(GoldenModels, HaveWeightsAndAnswers) {
  for (const char* name : golden_models::all()) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(ModelFiles(golden_models::directory(name)).tensors().empty());
    EXPECT_TRUE(std::filesystem::exists(golden_models::directory(name) / "golden.json"));
    EXPECT_FALSE(
        SafetensorsFile(golden_models::directory(name) / "golden.safetensors").tensors().empty());
  }
}

TEST(GoldenModels, AreThereOfEveryFamily) {
  std::set<std::string, std::less<>> types;
  for (const char* name : golden_models::all()) {
    for (const char* file : {"config.json", "config.v5.json"}) {
      const auto path = golden_models::directory(name) / file;
      if (std::filesystem::exists(path))
        types.emplace(read_json_file(path).at("model_type").as_string());
    }
  }
  for (const Family& family : families())
    EXPECT_TRUE(types.contains(family.model_type)) << family.model_type;
}

TEST(GoldenModels, AreSelectedByProperty) {
  using namespace golden_models;
  EXPECT_THAT(all(has_indexers), ::testing::ElementsAre(::testing::StrEq("deepseek_v32"),
                                                        ::testing::StrEq("glm_moe_dsa")));
  EXPECT_THAT(kinds(is_dense, has_windows),
              ::testing::ElementsAre(::testing::StrEq("gemma2"), ::testing::StrEq("gemma3_text"),
                                     ::testing::StrEq("phi3")));
}

}  // namespace
}  // namespace slime::model
