#include "cli/run_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/temporary_folder.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class RunModelTest : public testing::Test {
 protected:
  void leave(const fs::path& file) const {
    fs::create_directories((folder_.path() / file).parent_path());
    std::ofstream(folder_.path() / file) << "{}";
  }
  void leave_run(const std::string& name) const {
    leave(fs::path(name) / "run.json");
    leave(fs::path(name) / "checkpoints/iter_0000003/COMMITTED");
    fs::create_symlink("checkpoints/iter_0000003", folder_.path() / name / "latest");
  }
  std::string word(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::string refusal(const std::string& word) {
    try {
      model_of_word(word, "slime chat");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  const TemporaryFolder folder_{"run_model_test"};
};

TEST_F(RunModelTest, AFolderOfRunsAndModelsSaysWhichCanBeOpened) {
  leave_run("runs/both/tone");
  leave_run("runs/both/length");
  leave("runs/both/export/config.json");
  leave("runs/both/begun/run.json");  // has no checkpoint
  EXPECT_THAT(refusal(word("runs/both/")),
              EndsWith("is no model directory; open one of " + word("runs/both/export") + ", " +
                       word("runs/both/length") + ", " + word("runs/both/tone")));
  EXPECT_THAT(refusal(word("runs")), HasSubstr(word("runs/both/tone")));
}

TEST_F(RunModelTest, AdaptersOfARunAreOpenedByItsStep) {
  leave_run("run");
  leave("run/checkpoints/iter_0000003/adapter_config.json");
  leave("run/checkpoints/iter_0000120/adapter_config.json");
  EXPECT_THAT(refusal(word("run/checkpoints")),
              EndsWith("open one of " + word("run@120") + ", " + word("run@3")));
}

TEST_F(RunModelTest, AdaptersOfNoRunAreOpenedBesideTheirModel) {
  leave("peft/a/adapter_config.json");
  leave("peft/b/adapter_config.json");
  EXPECT_THAT(refusal(word("peft")),
              HasSubstr("below it are adapters: " + word("peft/a") + ", " + word("peft/b") + "; "));
  EXPECT_THAT(refusal(word("peft")), HasSubstr("serve MODEL --adapter " + word("peft/a")));
  EXPECT_EQ(model_of_word(word("peft/a"), "slime export").directory, word("peft/a"));
}

TEST_F(RunModelTest, AFolderWithNothingToOpenIsLeftToItsReader) {
  leave("other/notes.txt");
  EXPECT_EQ(model_of_word(word("other"), "slime chat").directory, word("other"));
}

TEST_F(RunModelTest, AFolderThatIsNotThereIsSaidWithWhatIsBesideIt) {
  leave_run("runs/first");
  EXPECT_THAT(refusal(word("runs/frist")),
              HasSubstr("no such file or directory; did you mean " + word("runs/first") + "?"));
  EXPECT_THAT(refusal(word("runs/nope")),
              EndsWith("no such file or directory; " + word("runs") + " has first"));
}

TEST_F(RunModelTest, ARunThatIsNotThereIsNoNameOfTheHub) {
  const std::string said = refusal("runs/no-run-of-this-name");
  EXPECT_THAT(said, HasSubstr("MODEL runs/no-run-of-this-name: no such file or directory"));
  EXPECT_THAT(said, Not(HasSubstr("hub")));
}

}  // namespace
}  // namespace slime::cli
