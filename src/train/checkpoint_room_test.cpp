#include "train/checkpoint_room.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "train/checkpoint_directory.h"

namespace slime::train {
namespace {

namespace fs = std::filesystem;

/// Three checkpoints of 100,000 bytes each, and what COMMITTED and the folder take.
struct Root {
  Root() {
    fs::remove_all(path);
    for (const int64_t iteration : {1, 2, 3})
      write_checkpoint_directory(path, iteration, [](const fs::path& folder) {
        std::ofstream(folder / "a") << std::string(100'000, 'x');
      });
  }
  ~Root() { fs::remove_all(path); }
  fs::path path = fs::temp_directory_path() / ("slime_room_" + std::to_string(getpid()));
};

using Names = std::vector<std::string>;

TEST(CheckpointRoom, TheOldestGoUntilWhatLacksIsFree) {
  const Root root;
  EXPECT_EQ(make_room_for_checkpoint(root.path, 50'000), Names{"iter_0000001"});
  EXPECT_EQ(checkpoint_iterations(root.path), (std::vector<int64_t>{2, 3}));
}

TEST(CheckpointRoom, WhatDisappearsWhileItIsCountedIsNoError) {
  const Root root;
  std::jthread writer([&](const std::stop_token& stop) {
    const fs::path folder = root.path / "part" / "deep";
    while (!stop.stop_requested()) {
      fs::create_directories(folder);
      std::ofstream(folder / "b") << "text";
      fs::remove_all(folder.parent_path());
    }
  });
  for (int i = 0; i < 500; ++i) {
    const uint64_t bytes = bytes_below(root.path);
    ASSERT_LT(bytes, 1'000'000U);
  }
}

TEST(CheckpointRoom, NoneGoesWhereAllButTheNewestAreNotEnough) {
  const Root root;
  EXPECT_EQ(make_room_for_checkpoint(root.path, 500'000), Names{});
  EXPECT_EQ(checkpoint_iterations(root.path), (std::vector<int64_t>{1, 2, 3}));
}

TEST(CheckpointRoom, ADamagedOneIsNotTheNewestWholeOne) {
  const Root root;
  std::ofstream(root.path / "iter_0000003" / "a") << "damaged";
  EXPECT_EQ(make_room_for_checkpoint(root.path, 150'000), Names{})
      << "2 stays, 1 alone is too small";
  EXPECT_EQ(make_room_for_checkpoint(root.path, 50'000), Names{"iter_0000001"});
  EXPECT_EQ(make_room_for_checkpoint(root.path, 50'000), Names{});
  EXPECT_EQ(checkpoint_iterations(root.path), (std::vector<int64_t>{2, 3}));
}

TEST(CheckpointRoom, TheNextOneIsExpectedToBeAsLargeAsTheNewest) {
  const Root root;
  const uint64_t expected = expected_checkpoint_bytes(root.path);
  EXPECT_GT(expected, 100'000U);
  EXPECT_LT(expected, 250'000U);
  EXPECT_EQ(missing_checkpoint_bytes(root.path), 0U);
  EXPECT_EQ(expected_checkpoint_bytes(root.path / "nothing"), 0U);
}

TEST(CheckpointRoom, OneOfTheSameSizeMakesRoomForOneThatCouldNotBegin) {
  EXPECT_EQ(missing_checkpoint_bytes(6400, 0), 6300U);
  EXPECT_EQ(missing_checkpoint_bytes(6400, 6000), 300U);
  EXPECT_EQ(missing_checkpoint_bytes(6400, 9000), 100U) << "it was larger than the one before";
}

TEST(CheckpointRoom, AFullDiskIsToldWithWhatWasWritten) {
  const Root root;
  const auto full = [](int error) {
    return [error](const fs::path& folder) {
      std::ofstream(folder / "a") << std::string(300, 'x');
      throw std::system_error(error, std::generic_category(), "a");
    };
  };
  try {
    write_checkpoint_directory(root.path, 4, full(ENOSPC));
    FAIL();
  } catch (const DiskFull& error) {
    EXPECT_GE(error.written_bytes(), 300U);
    EXPECT_LT(error.written_bytes(), 20'000U);
  }
  EXPECT_THROW(write_checkpoint_directory(root.path, 4, full(EDQUOT)), DiskFull);
  try {
    write_checkpoint_directory(root.path, 4, full(EIO));
    FAIL();
  } catch (const DiskFull&) {
    FAIL() << "room would not help";
  } catch (const ConfigError&) {
  }
}

}  // namespace
}  // namespace slime::train
