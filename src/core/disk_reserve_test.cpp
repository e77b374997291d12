#include "core/disk_reserve.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

namespace slime {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() { fs::create_directories(path / "inside"); }
  ~Folder() { fs::remove_all(path); }
  fs::path path = fs::temp_directory_path() / ("slime_reserve_" + std::to_string(getpid()));
};

TEST(DiskReserve, IsGivenUpOnceForAFileOfItsFolderOrOfOneInside) {
  const Folder folder;
  for (const char* name : {"metrics.jsonl", "inside/events"}) {
    EXPECT_TRUE(keep_reserve(folder.path));
    EXPECT_TRUE(has_reserve(folder.path));
    EXPECT_TRUE(release_reserve_for(folder.path / name));
    EXPECT_FALSE(has_reserve(folder.path));
    EXPECT_FALSE(release_reserve_for(folder.path / name)) << "a second try would be in vain";
  }
}

TEST(DiskReserve, HasRealBlocksAndIsSmall) {
  const Folder folder;
  ASSERT_TRUE(keep_reserve(folder.path));
  ASSERT_TRUE(keep_reserve(folder.path)) << "one that was left by a process that was killed";
  const auto size = fs::file_size(folder.path / ".reserve");
  EXPECT_GE(size, 16U << 10);
  EXPECT_LE(size, 4U << 20);
  remove_reserve(folder.path);
  EXPECT_FALSE(has_reserve(folder.path));
}

TEST(DiskReserve, WithoutAFolderThereIsNone) {
  EXPECT_FALSE(keep_reserve("/does/not/exist"));
  errno = ENOSPC;
  EXPECT_FALSE(release_reserve_for("/does/not/exist/file"));
  EXPECT_EQ(errno, ENOSPC) << "the write's problem is told";
  EXPECT_TRUE(says_full(ENOSPC));
  EXPECT_TRUE(says_full(EDQUOT));
  EXPECT_FALSE(says_full(EFBIG)) << "a limit of file sizes is not helped by room";
}

}  // namespace
}  // namespace slime
