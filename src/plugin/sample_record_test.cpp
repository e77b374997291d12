#include "plugin/sample_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

Sample three_tokens() {
  Sample sample{.ordinal = 17, .group = 4, .prompt_length = 2};
  sample.tokens = {12, 7, 42, 43, 2};
  sample.log_probs = {-0.5, -0.25, -1};
  sample.versions = {{5, 2}, {6, 1}};
  sample.response = "yes";
  sample.label = "4";
  sample.status = Status::kCompleted;
  return sample;
}

TEST(SampleRecord, HasTheOriginalsNamesAndListsAsColumns) {
  Columns columns = {std::vector<double>{}};  // of another sample in the frame
  const json::object record = to_record(three_tokens(), columns);
  EXPECT_EQ(record.at("index"), 17);
  EXPECT_EQ(record.at("group_index"), 4);
  EXPECT_EQ(record.at("response_length"), 3);
  EXPECT_EQ(record.at("status"), "completed");
  EXPECT_EQ(record.at("weight_versions"), (json::array{"5", "6"}));
  EXPECT_EQ(record.at("tokens"), (json::object{{"$column", 1}}));
  EXPECT_EQ(std::get<std::vector<int32_t>>(columns[1]), three_tokens().tokens);
  EXPECT_FALSE(record.contains("loss_mask"));
}

TEST(SampleRecord, HasDraftsWhereTheEngineHadSome) {
  Columns columns;
  EXPECT_FALSE(to_record(three_tokens(), columns).contains("spec_info"));
  Sample sample = three_tokens();
  sample.drafts = {.num_drafted = 4, .num_kept = 1, .num_steps = 2};
  EXPECT_EQ(to_record(sample, columns).at("spec_info"), (json::value{{"spec_accept_token_num", 1},
                                                                     {"spec_draft_token_num", 4},
                                                                     {"spec_verify_ct", 2},
                                                                     {"completion_token_num", 3}}));
}

TEST(SampleRecord, ChangesAreAppliedWhereASampleHasAPlace) {
  Sample sample = three_tokens();
  const json::object changes{{"metadata", {{"turns", 2}}},   {"remove_sample", true},
                             {"loss_mask", {1, 0, 1}},       {"status", "truncated"},
                             {"train_metadata", {{"a", 1}}}, {"extra", {{"own", 1}}}};
  apply_changes(changes, {}, "reward", sample);
  EXPECT_EQ(sample.user_fields,
            (json::object{{"extra", {{"own", 1}}}, {"train_metadata", {{"a", 1}}}}));
  EXPECT_EQ(sample.metadata, (json::object{{"turns", 2}}));
  EXPECT_TRUE(sample.remove_sample);
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(sample.status, Status::kTruncated);
  apply_changes({{"status", "failed"}}, {}, "reward", sample);
  EXPECT_EQ(sample.status, Status::kFailed);
  EXPECT_NE(sample.failure, "");
}

TEST(SampleRecord, ChangesThatNoSampleCanHaveAreRefused) {
  for (const json::object& changes :
       {json::object{{"status", "pending"}}, json::object{{"status", "fine"}},
        json::object{{"status", 3}}, json::object{{"metadata", 3}},
        json::object{{"remove_sample", "yes"}}, json::object{{"loss_mask", {1, 0}}},
        json::object{{"loss_mask", {1, 0, 2}}}, json::object{{"loss_mask", {{"$column", 9}}}}}) {
    Sample sample = three_tokens();
    EXPECT_THROW(apply_changes(changes, {}, "reward", sample), net::FrameError)
        << json_text(changes);
  }
}

}  // namespace
}  // namespace slime::plugin
