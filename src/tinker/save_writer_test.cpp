#include "tinker/save_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/temporary_folder.h"

namespace slime::tinker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

NamedSave save_of(const std::string& model, const std::string& directory) {
  return {.model = model,
          .directory = directory,
          .snapshot = std::make_shared<Snapshot>(),
          .run_file = {}};
}

SaveWriter::Which at(const std::string& directory) {
  return [directory](const NamedSave& save) { return save.directory == directory; };
}

/// What was written, and a gate that holds a write up or makes it fail.
class Written {
 public:
  void write(const NamedSave& save) {
    std::unique_lock lock(mutex_);
    is_at_gate_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    if (fails_) throw ConfigError("the disk is full");
    directories_.push_back(save.directory.string());
  }
  void open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  /// Until a write has come.
  void wait_for_writer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_at_gate_; });
  }
  void fail(bool fails) {
    const std::lock_guard lock(mutex_);
    fails_ = fails;
  }
  std::vector<std::string> directories() {
    const std::lock_guard lock(mutex_);
    return directories_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  bool is_at_gate_ = false;
  bool fails_ = false;
  std::vector<std::string> directories_;
};

constexpr std::chrono::hours kNever{1};

TEST(SaveWriter, WritesInOrderAndWhoFinishesWaits) {
  Written written;
  SaveWriter writer([&](const NamedSave& save) { written.write(save); });
  written.open(false);
  const NamedSave first = save_of("session-1:train:0", "a");
  writer.add(first);
  writer.add(save_of("session-2:train:0", "b"));
  EXPECT_EQ(writer.find("a"), first.snapshot);
  EXPECT_EQ(writer.find("c"), nullptr);
  EXPECT_TRUE(writer.has(at("b")));
  writer.finish(at("c"));  // waits for none of the others
  std::jthread opens([&] { written.open(true); });
  writer.finish(at("b"));
  EXPECT_THAT(written.directories(), ElementsAre("a", "b"));
  EXPECT_EQ(writer.find("a"), nullptr);
  EXPECT_FALSE(writer.has(at("b")));
}

TEST(SaveWriter, WhatCannotBeWrittenStaysAndIsTriedAgainByWhoNeedsIt) {
  Written written;
  SaveWriter writer([&](const NamedSave& save) { written.write(save); }, kNever);
  written.fail(true);
  writer.add(save_of("session-1:train:0", "a"));
  for (int i = 0; i < 2; ++i) EXPECT_THROW(writer.finish(at("a")), ConfigError);
  EXPECT_THROW(writer.wait_for_room(1), ConfigError);
  EXPECT_NE(writer.find("a"), nullptr);
  written.fail(false);
  writer.add(save_of("session-1:train:0", "b"));  // is not held up by the one before
  writer.finish(at("b"));
  EXPECT_THAT(written.directories(), ElementsAre("b"));
  writer.finish(at("a"));
  writer.wait_for_room(1);
  EXPECT_THAT(written.directories(), ElementsAre("b", "a"));
}

TEST(SaveWriter, WhatFailsHoldsUpNoOther) {
  Written written;
  SaveWriter writer(
      [&](const NamedSave& save) {
        if (save.directory == "a") throw ConfigError("a link is there");
        written.write(save);
      },
      kNever);
  writer.add(save_of("session-1:train:0", "a"));
  EXPECT_THROW(writer.finish(at("a")), ConfigError);
  written.open(false);
  writer.add(save_of("session-2:train:0", "b"));
  std::jthread opens([&] { written.open(true); });
  writer.wait_for_room(2);
  EXPECT_THAT(written.directories(), ElementsAre("b"));
  opens.join();
  written.open(false);
  writer.add(save_of("session-1:train:0", "c"));
  opens = std::jthread([&] { written.open(true); });
  EXPECT_THROW(writer.finish([](const NamedSave&) { return true; }), ConfigError);
  EXPECT_THAT(written.directories(), ElementsAre("b", "c"));
}

TEST(SaveWriter, TriesAgainByItself) {
  Written written;
  SaveWriter writer([&](const NamedSave& save) { written.write(save); },
                    std::chrono::milliseconds(1));
  written.fail(true);
  writer.add(save_of("session-1:train:0", "a"));
  EXPECT_THROW(writer.finish(at("a")), ConfigError);
  written.fail(false);
  while (writer.has(at("a"))) std::this_thread::yield();
  EXPECT_THAT(written.directories(), ElementsAre("a"));
}

TEST(SaveWriter, WhatIsDroppedIsNeverWrittenAndHoldsUpNobody) {
  Written written;
  {
    SaveWriter writer([&](const NamedSave& save) { written.write(save); }, kNever);
    written.fail(true);
    writer.add(save_of("session-1:train:0", "a"));
    EXPECT_THROW(writer.finish(at("a")), ConfigError);
    writer.drop(at("a"));
    EXPECT_FALSE(writer.has(at("a")));
    EXPECT_EQ(writer.find("a"), nullptr);
    writer.finish(at("a"));
    written.fail(false);
    writer.add(save_of("session-1:train:0", "b"));
    writer.finish(at("b"));
  }
  EXPECT_THAT(written.directories(), ElementsAre("b"));
}

TEST(SaveWriter, WhoDropsWhatIsBeingWrittenWaitsForIt) {
  Written written;
  written.open(false);
  SaveWriter writer([&](const NamedSave& save) { written.write(save); });
  writer.add(save_of("session-1:train:0", "a"));
  writer.add(save_of("session-1:train:0", "b"));
  written.wait_for_writer();
  writer.drop(at("b"));  // not for another
  std::jthread opens([&] { written.open(true); });
  writer.drop(at("a"));
  EXPECT_THAT(written.directories(), ElementsAre("a"));
  EXPECT_FALSE(writer.has(at("a")));
}

TEST(SaveWriter, WhatIsDroppedWhileItFailsIsNotTriedAgain) {
  Written written;
  {
    SaveWriter writer([&](const NamedSave& save) { written.write(save); }, kNever);
    written.open(false);
    written.fail(true);
    writer.add(save_of("session-1:train:0", "a"));
    written.wait_for_writer();
    std::jthread opens([&] { written.open(true); });
    writer.drop(at("a"));
    EXPECT_FALSE(writer.has(at("a")));
    written.fail(false);
  }
  EXPECT_THAT(written.directories(), IsEmpty());
}

TEST(SaveWriter, AtTheEndAllIsTriedOnceMore) {
  Written written;
  {
    SaveWriter writer([&](const NamedSave& save) { written.write(save); }, kNever);
    written.fail(true);
    writer.add(save_of("session-1:train:0", "a"));
    EXPECT_THROW(writer.finish(at("a")), ConfigError);
    written.fail(false);
    EXPECT_THAT(written.directories(), IsEmpty());
  }
  EXPECT_THAT(written.directories(), ElementsAre("a"));
}

TEST(SaveWriter, FoldersThatAreRemovedMakeRoomForOthersOfTheirNamesAtOnce) {
  const TemporaryFolder folder("save-writer");
  std::filesystem::create_directories(folder.path() / "a" / "b");
  std::filesystem::create_directories(folder.path() / "c");
  {
    SaveWriter writer([](const NamedSave&) {});
    writer.remove({folder.path() / "a", folder.path() / "nothing"});
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "a"));
    std::filesystem::create_directories(folder.path() / "a");
  }
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("a", "c"));
}

}  // namespace
}  // namespace slime::tinker
