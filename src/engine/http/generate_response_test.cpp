/// The answer's object, made of updates by hand.

#include "engine/http/generate_response.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace slime::engine {
namespace {

json::object meta_of(GenerateResponse& response) {
  return parse_json(response.to_json(), "answer").at("meta_info").as_object();
}

GenerateUpdate tokens_with_drafts(std::vector<TokenId> ids, DraftCounts drafts) {
  GenerateUpdate update;
  update.output_ids = std::move(ids);
  update.drafts = drafts;
  return update;
}

TEST(GenerateResponse, CountsDraftsByNewNamesAndOldOnes) {
  GenerateResponse response({}, nullptr, {});
  response.add(tokens_with_drafts({7}, {.num_drafted = 0, .num_kept = 0, .num_steps = 1}));
  response.add(tokens_with_drafts({8, 9, 4}, {.num_drafted = 3, .num_kept = 2, .num_steps = 1}));
  const json::object meta = meta_of(response);
  EXPECT_EQ(meta.at("completion_tokens"), 4);
  EXPECT_EQ(meta.at("spec_verify_ct"), 2);
  for (const char* name : {"spec_num_proposed_drafts", "spec_draft_token_num"})
    EXPECT_EQ(meta.at(name), 3) << name;
  for (const char* name : {"spec_num_correct_drafts", "spec_accept_token_num"})
    EXPECT_EQ(meta.at(name), 2) << name;
  EXPECT_EQ(meta.at("spec_accept_length").to_number<double>(), 2.0) << "4 tokens of 2 steps";
  EXPECT_DOUBLE_EQ(meta.at("spec_accept_rate").to_number<double>(), 2.0 / 3);
}

TEST(GenerateResponse, CountsTokensThatWereVerified) {
  GenerateResponse response({}, nullptr, {});
  response.add(tokens_with_drafts(
      {8, 9, 4},
      {.num_drafted = 3, .num_kept = 2, .num_steps = 1, .num_compared = 3, .num_redrawn = 1}));
  const json::object meta = meta_of(response);
  EXPECT_EQ(meta.at("verify_compared_token_num"), 3);
  EXPECT_EQ(meta.at("verify_redrawn_token_num"), 1);
}

TEST(GenerateResponse, OfAnEngineWithoutDraftsHasNoCountsOfThem) {
  GenerateResponse response({}, nullptr, {});
  response.add(tokens_with_drafts({7}, {}));
  for (const auto& member : meta_of(response))
    EXPECT_FALSE(std::string_view(member.key()).starts_with("spec_") ||
                 std::string_view(member.key()).starts_with("verify_"))
        << member.key();
}

}  // namespace
}  // namespace slime::engine
