#include "exports/model_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace slime::exports {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// The card of a run whose model was in this directory.
std::string card_of(const std::string& directory) {
  const fs::path run = fs::path(testing::TempDir()) / "card_of_run";
  fs::remove_all(run);
  fs::create_directories(run);
  std::ofstream(run / "run.json") << json_text(json::value{{"model", directory}});
  return model_card({.run = run, .step = 3, .title = "mine"});
}

TEST(ModelCard, NamesAModelOfTheHub) {
  const std::string card = card_of("/home/me/hub/models--Qwen--Qwen3-0.6B/snapshots/abc");
  EXPECT_THAT(card, HasSubstr("\nbase_model: Qwen/Qwen3-0.6B\n"));
  EXPECT_THAT(card, HasSubstr("Trained from `Qwen/Qwen3-0.6B`"));
}

/// "models/qwen3" would be somebody's model on the hub.
TEST(ModelCard, TakesNoDirectoryForANameOfTheHub) {
  for (const char* directory : {"models/qwen3", "./models/qwen3", "/data/models/qwen3/", "qwen3"}) {
    const std::string card = card_of(directory);
    EXPECT_THAT(card, Not(HasSubstr("base_model"))) << directory;
    EXPECT_THAT(card, HasSubstr("Trained from `qwen3`")) << directory;
  }
}

}  // namespace
}  // namespace slime::exports
