#include "engine/http/weight_pull.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/json.h"

namespace slime::engine {
namespace {

namespace fs = std::filesystem;

class WeightPull : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root);
    fs::create_directories(root / "local");
  }
  void TearDown() override { fs::remove_all(root); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  std::string read(const fs::path& path) const {
    std::ifstream file(root / path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string pull(std::int64_t version) const {
    return pull_weights(root / "source", root / "local", version);
  }

  const fs::path root = fs::path(testing::TempDir()) / "weight_pull";
};

TEST_F(WeightPull, AVersionTakesThePlaceOfTheOneBefore) {
  write("source/weight_v000001/model-1.safetensors", "a");
  write("source/weight_v000001/config.json", "{}");
  write("source/weight_v000002/model-2.safetensors", "b");
  EXPECT_EQ(pull(1), "version 1 is pulled");
  EXPECT_EQ(read("local/model-1.safetensors"), "a");
  EXPECT_EQ(pull(1), "version 1 is there already");
  EXPECT_EQ(pull(2), "version 2 is pulled");
  EXPECT_EQ(read("local/model-2.safetensors"), "b");
  EXPECT_FALSE(fs::exists(root / "local/model-1.safetensors")) << "a shard of an older version";
  EXPECT_EQ(read("local/config.json"), "{}");
  EXPECT_EQ(parse_json(read("local/.weight_sync/state.json"), "state").at("version"), 2);
}

TEST_F(WeightPull, WhatIsNotThereOrNotWholeIsRefusedAndChangesNothing) {
  write("source/weight_v000001/model.safetensors", "a");
  pull(1);
  write("source/weight_v000002/model.safetensors.index.json",
        R"({"metadata":{"version":2,"base_version":1,"delta_encoding":"xor"},"weight_map":{}})");
  EXPECT_THROW(pull(2), ConfigError);
  EXPECT_THROW(pull(3), ConfigError);
  EXPECT_EQ(read("local/model.safetensors"), "a");
  EXPECT_EQ(pull(1), "version 1 is there already");
  write("source/weight_v000004/deeper/file", "x");
  EXPECT_THROW(pull(4), ConfigError);
  EXPECT_EQ(read("local/model.safetensors"), "a");
}

TEST_F(WeightPull, LinksThatLeadElsewhereAreNotFollowed) {
  write("elsewhere/model.safetensors", "secret");
  fs::create_directories(root / "source");
  fs::create_directory_symlink(root / "elsewhere", root / "source/weight_v000001");
  EXPECT_THROW(pull(1), ConfigError);
  EXPECT_FALSE(fs::exists(root / "local/model.safetensors"));

  write("source/weight_v000002/model.safetensors", "b");
  fs::create_symlink(root / "elsewhere/model.safetensors", root / "local/model.safetensors.tmp");
  EXPECT_EQ(pull(2), "version 2 is pulled");
  EXPECT_EQ(read("local/model.safetensors"), "b");
  EXPECT_EQ(read("elsewhere/model.safetensors"), "secret") << "it was written through a link";

  fs::remove_all(root / "local/.weight_sync");
  fs::create_directory_symlink(root / "elsewhere", root / "local/.weight_sync");
  EXPECT_THROW(pull(2), ConfigError);
}

}  // namespace
}  // namespace slime::engine
