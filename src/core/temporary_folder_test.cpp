#include "core/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"

namespace slime {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolder, IsRemovedWithAllThatIsInIt) {
  fs::path path;
  {
    const TemporaryFolder folder("slime-test");
    path = folder.path();
    fs::create_directory(path / "deep");
    std::ofstream(path / "deep" / "file") << "text";
    EXPECT_EQ(path.parent_path(), fs::temp_directory_path());
    EXPECT_THAT(path.filename().string(), ::testing::StartsWith("slime-test-"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    EXPECT_NE(TemporaryFolder("slime-test").path(), path);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolder, ThatIsKeptOutlivesItsObject) {
  fs::path path;
  {
    TemporaryFolder folder("slime-test");
    folder.keep();
    path = folder.path();
  }
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_TRUE(fs::remove(path));
}

TEST(TemporaryFolder, CanBeRemovedEarly) {
  const TemporaryFolder folder("slime-test");
  folder.remove();
  EXPECT_FALSE(fs::exists(folder.path()));
}

TEST(TemporaryFolder, ThatCannotBeMadeNamesItsPlace) {
  try {
    TemporaryFolder("no-such-folder/slime-test");
    FAIL() << "made";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no-such-folder/slime-test-"));
  }
}

}  // namespace
}  // namespace slime
