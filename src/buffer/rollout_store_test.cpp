// The log and the store over it, on a real disk. A kill is the store's folder copied while it works.

#include "buffer/rollout_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <sstream>

#include "core/error.h"

namespace slime::buffer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RolloutStoreTest : public ::testing::Test {
 protected:
  RolloutStoreTest() { std::filesystem::remove_all(folder_); }
  ~RolloutStoreTest() override { std::filesystem::remove_all(folder_); }

  RolloutStoreConfig config() const { return {.folder = folder_, .group_size = 2}; }
  std::filesystem::path log() const { return folder_ / "buffer.log"; }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("rollout_store_{}", ::getpid());
};

template <typename T, typename Call>
RolloutAnswer<T> wait_for(const Call& call) {
  std::promise<RolloutAnswer<T>> promise;
  call([&promise](RolloutAnswer<T> answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

RolloutAnswer<WriteReceipt> write(RolloutStore& store, int instance, const std::string& uid,
                                  std::size_t padding = 0) {
  return wait_for<WriteReceipt>([&](auto done) {
    auto item = parse_rollout_item(fmt::format(R"({{"instance_id":{},"uid":"{}","text":"{}"}})",
                                               instance, uid, std::string(padding, 'x')));
    store.write(std::move(*item), done);
  });
}

/// Instances of the items that come.
std::vector<std::string> take(RolloutStore& store, const std::string& request = "",
                              std::size_t most = 1000) {
  const auto answer = wait_for<GivenGroups>([&](auto done) { store.take(most, request, done); });
  EXPECT_TRUE(answer.has_value());
  std::vector<std::string> instances;
  for (const RolloutGroup& group : answer->groups) {
    for (const RolloutItem& item : group.items) instances.push_back(item.instance);
  }
  return instances;
}

RolloutCounts count(RolloutStore& store) {
  return *wait_for<RolloutCounts>([&](auto done) { store.count(done); });
}

TEST_F(RolloutStoreTest, WhatWasWrittenIsThereAfterARestart) {
  {
    RolloutStore store(config());
    for (const int instance : {7, 8, 7})
      EXPECT_TRUE(write(store, instance, fmt::format("u{}", count(store).num_items)));
  }
  RolloutStore store(config());
  EXPECT_EQ(count(store).num_items, 3);
  EXPECT_THAT(take(store), ElementsAre("7", "7"));
  EXPECT_THAT(take(store), IsEmpty());
}

TEST_F(RolloutStoreTest, AGroupThatWasGivenIsNotThereAfterARestart) {
  {
    RolloutStore store(config());
    write(store, 7, "a");
    write(store, 7, "b");
    EXPECT_THAT(take(store, "first"), ElementsAre("7", "7"));
  }
  RolloutStore store(config());
  EXPECT_THAT(take(store, "second"), IsEmpty());
  EXPECT_THAT(take(store, "first"), ElementsAre("7", "7")) << "who lost the answer asks again";
  EXPECT_FALSE(write(store, 7, "a")->is_new) << "its uids are known";
}

TEST_F(RolloutStoreTest, ATornRecordAtTheEndIsCutOff) {
  {
    RolloutStore store(config());
    write(store, 7, "a");
  }
  const auto whole = std::filesystem::file_size(log());
  std::ofstream(log(), std::ios::app) << "0badc0de w 0 {\"instance_id\"";
  RolloutStore store(config());
  EXPECT_GT(store.torn_bytes(), 0);
  EXPECT_EQ(std::filesystem::file_size(log()), whole);
  EXPECT_TRUE(write(store, 7, "b"));
  EXPECT_THAT(take(store), ElementsAre("7", "7"));
}

TEST_F(RolloutStoreTest, EveryPrefixOfALogIsALog) {
  {
    RolloutStore store(config());
    for (const int instance : {1, 2, 1, 2, 3})
      write(store, instance, fmt::format("{}", count(store).num_items));
    take(store, "r", 1);
  }
  std::ifstream file(log(), std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  int64_t before = 0;
  for (std::size_t size = 0; size <= all.size(); size += 7) {
    std::ofstream(log(), std::ios::binary | std::ios::trunc) << all.substr(0, size);
    RolloutStore store(config());
    const RolloutCounts counts = count(store);
    const int64_t written = counts.num_items + 2 * counts.num_given;
    EXPECT_GE(written, before) << size;
    before = written;
  }
}

TEST_F(RolloutStoreTest, DamageBeforeTheEndIsRefused) {
  {
    RolloutStore store(config());
    write(store, 7, "a");
    write(store, 7, "b");
  }
  std::fstream file(log(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file.put('#');
  file.close();
  try {
    RolloutStore store(config());
    FAIL() << "a damaged log was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("damaged at byte 0"));
  }
}

TEST_F(RolloutStoreTest, AFolderHasOneStore) {
  const RolloutStore store(config());
  EXPECT_THROW(RolloutStore another(config()), ConfigError);
}

TEST_F(RolloutStoreTest, AFullBufferTakesItemsOfGroupsThatBegan) {
  RolloutStoreConfig small = config();
  small.max_items = 2;
  RolloutStore store(small);
  write(store, 1, "a");
  write(store, 2, "a");
  const auto refused = write(store, 3, "a");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().refusal, Refusal::kFull);
  EXPECT_TRUE(write(store, 1, "b").has_value());
  EXPECT_THAT(take(store), ElementsAre("1", "1"));
  EXPECT_TRUE(write(store, 3, "a").has_value());
}

TEST_F(RolloutStoreTest, BytesAreBoundedToo) {
  RolloutStoreConfig small = config();
  small.max_bytes = 1000;
  RolloutStore store(small);
  EXPECT_TRUE(write(store, 1, "a", 900).has_value());
  EXPECT_FALSE(write(store, 2, "a", 900).has_value());
}

TEST_F(RolloutStoreTest, AnotherTaskWaitsUntilNothingIsLeft) {
  const auto begin = [](RolloutStore& store, const std::string& task, int64_t size) {
    return wait_for<RolloutCounts>([&](auto done) { store.begin(task, size, done); });
  };
  {
    RolloutStore store(config());
    EXPECT_TRUE(begin(store, "math", 3).has_value());
    write(store, 1, "a");
    const auto refused = begin(store, "code", 3);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("1 items of task math in groups of 3 wait"));
  }
  RolloutStore store(config());
  EXPECT_EQ(count(store).group_size, 3);
  EXPECT_EQ(count(store).task_type, "math");
}

TEST_F(RolloutStoreTest, ALogIsWrittenAnewWithoutWhatIsGone) {
  RolloutStoreConfig small = config();
  small.rewrite_bytes = 20'000;
  uintmax_t largest = 0;
  {
    RolloutStore store(small);
    write(store, 1000, "waits");
    for (int i = 0; i < 100; ++i) {
      write(store, i, "a", 500);
      write(store, i, "b", 500);
      EXPECT_EQ(take(store, fmt::format("r{}", i)).size(), 2U) << i;
      largest = std::max(largest, std::filesystem::file_size(log()));
    }
    EXPECT_FALSE(write(store, 3, "a")->is_new);
  }
  EXPECT_LT(largest, 60'000U) << "110,000 bytes were written";
  RolloutStore store(small);
  EXPECT_EQ(count(store).num_items, 1);
  EXPECT_EQ(count(store).num_given, 100);
  EXPECT_EQ(take(store, "r99").size(), 2U);
  EXPECT_FALSE(write(store, 3, "b")->is_new);
  write(store, 1000, "last");
  EXPECT_THAT(take(store), ElementsAre("1000", "1000"));
}

TEST_F(RolloutStoreTest, ManyWritersAreAllHeard) {
  RolloutStore store(config());
  std::vector<std::jthread> writers;
  std::atomic<int> num_new = 0;
  for (int thread = 0; thread < 8; ++thread) {
    writers.emplace_back([&store, &num_new, thread] {
      for (int i = 0; i < 50; ++i)
        num_new += write(store, i, fmt::format("{}", thread))->is_new ? 1 : 0;
    });
  }
  writers.clear();
  EXPECT_EQ(num_new, 400);
  EXPECT_EQ(take(store).size(), 400U);
}

TEST(RolloutLog, LinesThatThisProgramDidNotWriteAreNone) {
  for (const std::string_view line : {"", "x", "00000000 w 0 {}", "00000000 b {}", "        w  "})
    EXPECT_FALSE(parse_rollout_line(line).has_value()) << line;
  std::string line = to_rollout_line(RolloutTaken{.groups = {1, 2}, .request_id = "r"});
  line.pop_back();
  ASSERT_TRUE(parse_rollout_line(line).has_value());
  line[10] = 'b';
  EXPECT_FALSE(parse_rollout_line(line).has_value());
}

}  // namespace
}  // namespace slime::buffer
