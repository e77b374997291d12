#include "tinker/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "core/error.h"
#include "core/replace_file.h"
#include "tinker/refusal.h"

namespace slime::tinker {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "tinker-journal-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    store_ = name;
  }
  void TearDown() override { fs::remove_all(store_); }

  fs::path store_;
  const std::string model_ = "session-1:train:0";
};

TEST_F(JournalTest, KeepsObjectsOverAStart) {
  {
    const Journal journal(store_);
    EXPECT_EQ(journal.num_starts(), 1);
    journal.write(Journal::Kind::kSession, "session-1", {{"owner", "a"}});
    journal.write(Journal::Kind::kModel, model_, {{"rank", 4}});
    journal.write(Journal::Kind::kModel, "session-1:train:1", {{"rank", 8}});
    journal.remove(Journal::Kind::kModel, "session-1:train:1");
  }
  const Journal journal(store_);
  EXPECT_EQ(journal.num_starts(), 2);
  EXPECT_EQ(journal.read(Journal::Kind::kSession).at("session-1").at("owner"), "a");
  const auto models = journal.read(Journal::Kind::kModel);
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models.at(model_).at("rank"), 4);
}

TEST_F(JournalTest, OneProcessUsesAStore) {
  const Journal journal(store_);
  EXPECT_THROW(Journal{store_}, ConfigError);
}

int status_of(const std::function<void()>& write) {
  try {
    write();
  } catch (const Refusal& refusal) {
    return refusal.status();
  }
  return 200;
}

TEST_F(JournalTest, WhatCannotBeWrittenIsRefused) {
  const Journal journal(store_);
  const fs::path sessions = store_ / ".service" / "sessions";
  fs::remove(sessions);
  replace_file(sessions, "no folder");
  fs::create_directories(journal.folder(model_));
  replace_file(journal.folder(model_) / "requests", "no folder");
  const AcceptedRequest request{.seq_id = 1, .route = "x", .future = "f", .body = {}};
  EXPECT_EQ(status_of([&] { journal.write(Journal::Kind::kSession, "session-1", {}); }), 503);
  EXPECT_EQ(status_of([&] { journal.accept(model_, request); }), 503);
  EXPECT_EQ(status_of([&] { journal.answer(model_, request); }), 503);
  replace_file(journal.folder(model_) / "deleted", "no folder");
  EXPECT_EQ(status_of([&] { journal.note_deletion(model_, "weights/one", 1); }), 503);
  EXPECT_EQ(status_of([&] { journal.write(Journal::Kind::kModel, model_, {}); }), 200);
}

TEST_F(JournalTest, RequestsComeBackInOrderWithAllTheirBytes) {
  const Journal journal(store_);
  const std::string body("a\n\0b\n", 5);
  for (const int64_t seq_id : {10, 9, 2})
    journal.accept(model_, {.seq_id = seq_id,
                            .route = "forward_backward",
                            .future = "req-" + std::to_string(seq_id),
                            .is_message = true,
                            .body = body});
  const auto requests = journal.requests(model_, 2);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].seq_id, 9);
  EXPECT_EQ(requests[1].seq_id, 10);
  EXPECT_EQ(requests[1].body, body);
  EXPECT_EQ(requests[1].future, "req-10");
  EXPECT_EQ(requests[1].route, "forward_backward");
  EXPECT_TRUE(requests[1].is_message);
}

TEST_F(JournalTest, KeepsWhatWasDeletedUntilAStateIsBehindIt) {
  using Deletions = std::multimap<int64_t, std::string>;
  {
    const Journal journal(store_);
    EXPECT_TRUE(journal.deletions(model_, 0).empty());
    EXPECT_EQ(journal.last_request(model_), 0);
    for (const int64_t seq_id : {3, 10, 9})
      journal.accept(model_, {.seq_id = seq_id, .route = "x", .future = "f", .body = {}});
    EXPECT_EQ(journal.last_request(model_), 10);
    journal.note_deletion(model_, "weights/one", 3);
    journal.note_deletion(model_, "weights/one.part", 3);
    journal.note_deletion(model_, "sampler_weights/one", 7);
    journal.note_deletion(model_, "weights/one", 9);  // the last one of a name
    journal.note_deletion(model_, "weights/not", 9);
    journal.take_back_deletion(model_, "weights/not");
  }
  const Journal journal(store_);
  EXPECT_EQ(journal.deletions(model_, 0),
            (Deletions{{3, "weights/one.part"}, {7, "sampler_weights/one"}, {9, "weights/one"}}));
  EXPECT_EQ(journal.deletions(model_, 7), (Deletions{{9, "weights/one"}}));
  EXPECT_TRUE(journal.deletions("session-1:train:1", 0).empty());
  journal.forget(model_, 7);
  EXPECT_EQ(journal.deletions(model_, 0), (Deletions{{9, "weights/one"}}));
  journal.forget_model(model_);
  EXPECT_TRUE(journal.deletions(model_, 0).empty());
}

TEST_F(JournalTest, ForgetsWhatAStateHasMadeNeedless) {
  const Journal journal(store_);
  for (int64_t seq_id = 1; seq_id <= 300; ++seq_id) {
    journal.accept(model_, {.seq_id = seq_id, .route = "x", .future = "f", .body = {}});
    journal.answer(model_, {.seq_id = seq_id, .route = "x", .future = "f", .body = "{}"});
  }
  for (const int64_t seq_id : {100, 290}) fs::create_directories(journal.state(model_, seq_id));
  const fs::path half_written = journal.folder(model_) / "states" / ".280.part";
  fs::create_directories(half_written);
  EXPECT_EQ(journal.newest_state(model_).first, 290);
  journal.forget(model_, 290);
  EXPECT_EQ(journal.requests(model_, 0).size(), 10U);
  EXPECT_EQ(journal.answers(model_).front().seq_id, 290 - 256 + 1);
  EXPECT_EQ(journal.newest_state(model_).first, 290);
  EXPECT_FALSE(fs::exists(journal.state(model_, 100)));
  EXPECT_FALSE(fs::exists(half_written));
  journal.forget_model(model_);
  EXPECT_TRUE(journal.requests(model_, 0).empty());
  EXPECT_TRUE(journal.newest_state(model_).second.empty());
}

std::string problem_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was wrong";
}

TEST_F(JournalTest, DamagedFilesAreNamed) {
  const Journal journal(store_);
  journal.accept(model_, {.seq_id = 3, .route = "x", .future = "f", .body = {}});
  journal.note_deletion(model_, "weights/one", 3);
  const fs::path request = journal.folder(model_) / "requests" / "3.request";
  replace_file(request, "no head");
  EXPECT_THAT(problem_of([&] { (void)journal.requests(model_, 0); }),
              testing::HasSubstr(request.string()));
  const fs::path deletion = journal.folder(model_) / "deleted" / "weights" / "one.deleted";
  replace_file(deletion, "no number");
  EXPECT_THAT(problem_of([&] { (void)journal.deletions(model_, 0); }),
              testing::HasSubstr(deletion.string()));
}

}  // namespace
}  // namespace slime::tinker
