#include "plugin/rollout_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "plugin/host_process.h"

namespace slime::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RolloutDump : public ::testing::Test {
 protected:
  RolloutDump() { fs::create_directories(folder_); }
  ~RolloutDump() override { fs::remove_all(folder_); }
  fs::path write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("rollout_dump_" + std::to_string(::getpid()));
};

TEST_F(RolloutDump, GoesToTheOriginalsFormAndBack) {
  if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
  const fs::path lines = write(
      "step_3.jsonl",
      R"({"group_index": 0, "index": 0, "prompt": "a", "tokens": [1, 2], "response": "b", "response_length": 1, "reward": 1.0, "loss_mask": [1], "weight_versions": [[2, 1]], "status": "completed"})"
      "\n");
  EXPECT_FALSE(is_torch_file(lines));
  convert_rollout_dump(lines, folder_ / "step_3.pt");
  EXPECT_TRUE(is_torch_file(folder_ / "step_3.pt"));
  convert_rollout_dump(folder_ / "step_3.pt", folder_ / "back.jsonl");
  std::string line;
  std::getline(std::ifstream(folder_ / "back.jsonl"), line);
  EXPECT_THAT(line, HasSubstr(R"("tokens": [1, 2])"));
  EXPECT_THAT(line, HasSubstr(R"("weight_versions": [[2, 1]])"));
}

TEST_F(RolloutDump, ThatIsNoneIsRefusedWithTheFileAndTheReason) {
  if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
  const fs::path broken = write("x.pt", "PK\x03\x04 and nothing");
  EXPECT_TRUE(is_torch_file(broken));
  try {
    convert_rollout_dump(broken, folder_ / "x.jsonl");
    FAIL() << "converted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.pt"));
    EXPECT_THAT(error.what(), HasSubstr("cannot be read"));
  }
}

}  // namespace
}  // namespace slime::plugin
