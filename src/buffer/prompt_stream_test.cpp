#include "buffer/prompt_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "buffer/data_source.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_with(const std::string& name, const std::string& content) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("prompt_stream_" + name);
  std::ofstream(path) << content;
  return path.string();
}

DatasetConfig four_rows() {
  DatasetConfig config;
  config.paths = {file_with("four.jsonl",
                            "{\"input\": \"a\"}\n{\"input\": \"bbb\"}\n\n{\"input\": \"cc\"}\n"
                            "{\"input\": \"d\"}\n")};
  return config;
}

std::vector<TokenId> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::vector<std::string> take(PromptStream& stream, int count) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    const StreamedPrompt next = stream.next();
    texts.push_back(next.prompt.text + std::to_string(next.epoch) + std::to_string(next.row));
  }
  return texts;
}

TEST(PromptStream, GivesRowsInFileOrderPassAfterPass) {
  PromptStream stream(four_rows(), nullptr, bytes_of);
  EXPECT_THAT(take(stream, 6), ElementsAre("a00", "bbb01", "cc02", "d03", "a10", "bbb11"));
}

TEST(PromptStream, LeavesLongRowsOutAndCountsOnlyTheOthers) {
  DatasetConfig config = four_rows();
  config.max_prompt_tokens = 2;
  PromptStream stream(config, nullptr, bytes_of);
  EXPECT_THAT(take(stream, 4), ElementsAre("a00", "cc01", "d02", "a10"));
  const PromptStream::Lookback found = stream.resume(1, 2, 3, {1, 2});
  EXPECT_EQ(found.prompts.at(1).text, "cc");
  EXPECT_EQ(found.prompts.at(2).text, "d") << "which stands behind the position";
  EXPECT_EQ(found.read.num_rows, 3);
  EXPECT_THAT(take(stream, 2), ElementsAre("d12", "a20"));
}

TEST(PromptStream, ARowThatIsNotThereAnyMoreIsSaid) {
  PromptStream stream(four_rows(), nullptr, bytes_of);
  try {
    stream.resume(0, 2, 2, {7});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("row 7, of a group in flight"));
  }
}

TEST(PromptStream, GoesOnWhereItIsTold) {
  PromptStream stream(four_rows(), nullptr, bytes_of);
  take(stream, 1);
  stream.seek(2, 3);
  EXPECT_THAT(take(stream, 2), ElementsAre("d23", "a30"));
}

TEST(PromptStream, ABadRowEndsTheRunWithItsPlaceWhenItIsReached) {
  std::string rows;
  for (int row = 0; row < 64; ++row) rows += "{\"input\": \"a\"}\n";
  DatasetConfig config;
  config.paths = {file_with("bad.jsonl", rows + "{\"prompt\": \"b\"}\n")};
  PromptStream stream(config, nullptr, bytes_of);
  for (int row = 0; row < 64; ++row) EXPECT_EQ(stream.next().prompt.text, "a");
  try {
    stream.next();
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad.jsonl, line 65: no field \"input\""));
  }
}

TEST(PromptStream, ABadRowAmongTheFirstIsFoundBeforeTheRun) {
  DatasetConfig config;
  config.paths = {file_with("early.jsonl", "{\"input\": \"a\"}\n{\"prompt\": \"b\"}\n")};
  try {
    const PromptStream stream(config, nullptr, bytes_of);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("early.jsonl, line 2: no field \"input\""));
  }
}

TEST(PromptStream, AFileWithoutRowsIsRefusedAtOnce) {
  DatasetConfig config;
  config.paths = {file_with("empty.jsonl", "\n\n")};
  EXPECT_THROW(PromptStream(config, nullptr, bytes_of), ConfigError);
}

TEST(PromptStream, ADataSourceContinuesFromItsSavedState) {
  PromptStream first(four_rows(), nullptr, bytes_of);
  DataSource source(first, {.samples_per_prompt = 2});
  source.take(3);
  const json::object state = source.save({1});  // the group of "bbb" was in flight
  PromptStream second(four_rows(), nullptr, bytes_of);
  DataSource again(second, {.samples_per_prompt = 2});
  again.restore(state, "state");
  std::vector<std::string> prompts;
  for (const Group& group : again.take(3)) prompts.push_back(group.samples.front().prompt);
  EXPECT_THAT(prompts, ElementsAre("bbb", "d", "a"));
  EXPECT_EQ(again.epoch(), 1);
  EXPECT_EQ(again.next_sample(), 10);
}

/// Bytes that this process has read from files so far; 0 where the system does not tell.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t count = 0;
  return file >> name >> count && name == "rchar:" ? count : 0;
}

/// When the reader's queue is full, however busy the machine is.
int64_t bytes_read_once_quiet() {
  for (int64_t last = bytes_read(), num_equal = 0; num_equal < 10;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const int64_t now = bytes_read();
    // To ask costs some hundred bytes.
    num_equal = now - last < 2000 ? num_equal + 1 : 0;
    last = now;
  }
  return bytes_read();
}

TEST(PromptStream, ResumingReadsTheRowsBeforeThePositionOnce) {
  if (bytes_read() == 0) GTEST_SKIP() << "this system does not count what a process reads";
  constexpr int64_t kRows = 2000, kBytes = 4096;
  std::string content;
  for (int64_t i = 0; i < kRows; ++i)
    content += "{\"input\": \"" + std::to_string(i) + "\", \"label\": \"" +
               std::string(kBytes, 'x') + "\"}\n";
  DatasetConfig config;
  config.paths = {file_with("long.jsonl", content)};
  json::object state;
  {
    PromptStream stream(config, nullptr, bytes_of);
    DataSource source(stream, {});
    source.take(kRows - 1);
    state = source.save({5, 900});
  }
  PromptStream stream(config, nullptr, bytes_of);
  DataSource source(stream, {});
  stream.next();
  const int64_t before = bytes_read_once_quiet();
  EXPECT_TRUE(source.restore(state, "state").empty());
  std::vector<std::string> prompts;
  for (const Group& group : source.take(3)) prompts.push_back(group.samples.front().prompt);
  EXPECT_THAT(prompts, ElementsAre("5", "900", std::to_string(kRows - 1)));
  // The file, and of the next pass as much as the reader is ahead: a full queue, and the block of the
  // file that its last row is in.
  constexpr int64_t kAhead = 256 * (kBytes + 100), kBlock = 1 << 20;
  EXPECT_LT(bytes_read() - before, kRows * (kBytes + 100) + kAhead + kBlock);
}

/// The state after three of the four rows.
json::object state_after_three_rows() {
  PromptStream stream(four_rows(), nullptr, bytes_of);
  DataSource source(stream, {});
  source.take(3);
  return source.save({});
}

std::vector<std::string> remarks_of(const std::string& rows) {
  const json::object state = state_after_three_rows();
  DatasetConfig config;
  config.paths = {file_with("now.jsonl", rows)};
  PromptStream stream(config, nullptr, bytes_of);
  DataSource source(stream, {});
  return source.restore(state, "state");
}

TEST(PromptStream, ARowThatChangedOrMovedBeforeThePositionIsRemarkedOn) {
  const std::string a = "{\"input\": \"a\"}\n", b = "{\"input\": \"bbb\"}\n",
                    c = "{\"input\": \"cc\"}\n", d = "{\"input\": \"d\"}\n";
  EXPECT_THAT(remarks_of(a + b + c + d), ElementsAre());
  EXPECT_THAT(remarks_of(a + b + c + d + a), ElementsAre());  // grown behind the position
  EXPECT_THAT(remarks_of(b + a + c + d),
              ElementsAre(HasSubstr("the prompt data changed since the checkpoint (the first 3")));
  EXPECT_THAT(remarks_of(a + b + d + c), ElementsAre(HasSubstr("prompt data changed")));
  EXPECT_THAT(remarks_of(a + b), ElementsAre(HasSubstr("prompt data changed")));
}

TEST(PromptStream, ANotedChangeIsNotNotedAgain) {
  const json::object state = state_after_three_rows();
  DatasetConfig config;
  config.paths = {file_with("moved.jsonl",
                            "{\"input\": \"d\"}\n{\"input\": \"a\"}\n"
                            "{\"input\": \"cc\"}\n{\"input\": \"bbb\"}\n")};
  PromptStream stream(config, nullptr, bytes_of);
  DataSource source(stream, {});
  EXPECT_EQ(source.restore(state, "state").size(), 1U);
  source.take(1);
  PromptStream later(config, nullptr, bytes_of);
  DataSource again(later, {});
  EXPECT_THAT(again.restore(source.save({}), "state"), ElementsAre());
}

TEST(PromptStream, HowLongAPassIsIsKnownAfterTheFirst) {
  PromptStream stream(four_rows(), nullptr, bytes_of);
  DataSource source(stream, {});
  source.take(4);
  EXPECT_EQ(source.prompts_per_epoch(), std::nullopt);
  source.take(1);
  EXPECT_EQ(source.prompts_per_epoch(), 4);
}

}  // namespace
}  // namespace slime::buffer
