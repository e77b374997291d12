#include "core/folder_name.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

TEST(FolderName, IsThatOfTheWholePath) {
  EXPECT_EQ(folder_name("models/first"), "first");
  EXPECT_EQ(folder_name("models/first/"), "first");
  EXPECT_EQ(folder_name("/models/first/checkpoints/.."), "first");
  EXPECT_EQ(folder_name("."), std::filesystem::current_path().filename().string());
  EXPECT_EQ(folder_name("/"), "");
}

}  // namespace
}  // namespace slime
