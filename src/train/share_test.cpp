#include "train/share.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "train/rank_report.h"

namespace slime::train {
namespace {

/// Samples of these lengths with prompts of two tokens; each is a rollout execution of its own.
TrainBatch batch_of(const std::vector<int64_t>& lengths) {
  TrainBatch batch;
  for (const int64_t length : lengths) {
    TrainSample sample;
    sample.ordinal = sample.rollout_id = static_cast<int64_t>(batch.samples.size());
    sample.tokens.assign(length, static_cast<TokenId>(sample.ordinal));
    sample.prompt_length = 2;
    sample.loss_mask.assign(length - 2, 1);
    sample.rollout_mask_total = length - 2;
    sample.source_name = "math";
    batch.samples.push_back(std::move(sample));
  }
  return batch;
}

PlanOptions two_ranks(int64_t global_batch_size) {
  PlanOptions options;
  options.batching = {.global_batch_size = global_batch_size,
                      .use_dynamic_batch_size = true,
                      .max_tokens_per_gpu = 12,
                      .dp = 2};
  return options;
}

TEST(Share, EachRankGetsItsMicroBatchesOfEachStep) {
  const auto shares = divide(batch_of({5, 9, 4, 8}), two_ranks(4), {});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].batch_indices, (Indices{0, 3}));
  EXPECT_EQ(shares[1].batch_indices, (Indices{1, 2}));
  EXPECT_EQ(shares[1].batch.samples[0].ordinal, 1);
  const StepShare expected{.micro_batches = {{0}, {1}},
                           .num_executions = 4,
                           .denominator = 4,
                           .num_micro_batches = 4,
                           .num_predictions = 3 + 7 + 2 + 6};
  EXPECT_EQ(shares[0].steps, std::vector<StepShare>{expected});
  EXPECT_EQ(shares[1].steps, std::vector<StepShare>{expected});
}

TEST(Share, DenominatorsAreThoseOfAllRanks) {
  PlanOptions options = two_ranks(2);
  options.reduction = algo::Reduction::kPerToken;
  TrainBatch batch = batch_of({5, 9, 4, 8, 7});
  batch.samples[0].loss_mask = {0, 0, 0};  // counts as one token
  const auto shares = divide(batch, options, {});
  ASSERT_EQ(shares[0].steps.size(), 2u);  // the fifth sample makes no step
  EXPECT_EQ(shares[0].steps[0].denominator, 1 + 7);
  EXPECT_EQ(shares[1].steps[1].denominator, 2 + 6);
  EXPECT_EQ(shares[1].steps[1].num_executions, 2);
}

/// Of a draft layer: trained tokens that two others precede.
TEST(Share, PredictionsAreThoseOfAllRanks) {
  TrainBatch batch = batch_of({5, 9, 4, 8});
  batch.samples[0].loss_mask = {0, 0, 0};
  batch.samples[2].loss_mask = {1, 1, 1};  // of a prompt of one token
  for (const BatchShare& share : divide(batch, two_ranks(4), {}))
    EXPECT_EQ(share.steps.at(0).num_predictions, 7 + 2 + 6);
  PlanOptions options = two_ranks(4);
  options.batching.dp = 1;
  EXPECT_EQ(plan_steps(batch, options, {}).at(0).num_predictions, 7 + 2 + 6);
}

/// Terms of routers are means over the micro-batches that are computed.
TEST(Share, MicroBatchesWithoutAResponseDoNotCount) {
  TrainBatch batch = batch_of({5, 9, 4, 8});
  batch.samples[1].tokens.resize(2);
  batch.samples[1].loss_mask.clear();
  PlanOptions options = two_ranks(4);
  options.batching.use_dynamic_batch_size = false;
  options.batching.micro_batch_size = 1;
  const auto shares = divide(batch, options, {});
  for (const BatchShare& share : shares) {
    EXPECT_EQ(share.steps.at(0).micro_batches.size(), 2U);
    EXPECT_EQ(share.steps.at(0).num_micro_batches, 3);
  }
  options.batching.dp = 1;
  const StepPlan plan = plan_steps(batch, options, {}).at(0);
  EXPECT_EQ(plan.micro_batches.size(), 4U);
  EXPECT_EQ(plan.num_micro_batches, 3);
}

TEST(Share, PairsStayTogetherAndReachEveryRank) {
  TrainBatch batch = batch_of({5, 9, 4, 8, 7, 6});
  for (TrainSample& sample : batch.samples) sample.rollout_id = sample.ordinal / 2;
  PlanOptions options = two_ranks(3);
  options.keeps_pairs = true;
  options.batching.max_tokens_per_gpu = 1000;  // one micro-batch would hold all of them
  const auto shares = divide(batch, options, {});
  EXPECT_EQ(shares[0].batch_indices, (Indices{0, 1}));
  EXPECT_EQ(shares[1].batch_indices, (Indices{4, 5, 2, 3}));
  EXPECT_EQ(shares[1].steps[0].num_executions, 3);
}

TEST(Share, TravelsAsBytes) {
  BatchShare share = divide(batch_of({5, 9, 4, 8}), two_ranks(2), {})[1];
  share.batch.samples[0].rollout_log_probs = {-0.5F, -0.25F};
  share.batch.samples[0].versions = {{4, 6}, {-1, 1}};
  share.batch.samples[0].truncated = true;
  share.batch.samples[1].reward = 0.75;
  const auto picture = std::make_shared<Attachment>(Attachment{.key = 7, .bytes = "pixels"});
  for (TrainSample& sample : share.batch.samples) sample.media = {{0, 2, picture}};
  const std::string bytes = to_frame(share);
  const BatchShare back = share_from_frame(bytes);
  EXPECT_EQ(to_frame(back), bytes);
  EXPECT_EQ(back.batch_indices, share.batch_indices);
  EXPECT_EQ(back.steps, share.steps);
  EXPECT_EQ(back.batch.samples[0].tokens, share.batch.samples[0].tokens);
  EXPECT_EQ(back.batch.samples[0].rollout_log_probs, share.batch.samples[0].rollout_log_probs);
  EXPECT_EQ(back.batch.samples[0].versions, share.batch.samples[0].versions);
  EXPECT_EQ(back.batch.samples[1].media, share.batch.samples[1].media);
  EXPECT_EQ(bytes.find("pixels"), bytes.rfind("pixels")) << "one attachment travels once";
  EXPECT_EQ(back.batch.samples[1].reward, 0.75);
  EXPECT_EQ(back.batch.samples[1].source_name, "math");
  for (std::size_t length = 0; length < bytes.size(); length += 7)
    EXPECT_THROW(share_from_frame(std::string_view(bytes).substr(0, length)), BugError);
}

TEST(Share, ItsReportTravelsAsBytesToo) {
  TrainReport report;
  report.steps = {{.step = 3, .metrics = {{"train/loss", 0.1}, {"train/x", -1.0 / 3}}},
                  {.step = 4, .metrics = {}, .skipped = "rank 1: a gradient is not finite"}};
  report.steps[0].metrics["train/nan"] = std::numeric_limits<double>::infinity();
  report.stopped = "too many";
  report.log_probs = {{-0.5F, -0.25F}, {}};
  report.advantages = {0.5F, -1.5F};
  report.rollout = {{"rollout/rewards", 2}};
  report.perf = {{"perf/actor_train_time", 0.7}};
  report.num_tokens = 100;
  report.num_computed_tokens = 60;
  const std::string bytes = to_frame(report);
  const TrainReport back = report_from_frame(bytes);
  EXPECT_EQ(to_frame(back), bytes);
  ASSERT_EQ(back.steps.size(), 2u);
  EXPECT_EQ(back.steps[0].metrics, report.steps[0].metrics);
  EXPECT_EQ(back.steps[1].skipped, report.steps[1].skipped);
  EXPECT_EQ(back.log_probs, report.log_probs);
  EXPECT_EQ(back.advantages, report.advantages);
  EXPECT_EQ(back.perf, report.perf);
  EXPECT_EQ(back.num_computed_tokens, 60);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(report_from_frame(std::string_view(bytes).substr(0, length)), BugError);
}

TEST(Share, BytesOfAnotherVersionAreRefused) {
  std::string bytes = to_frame(BatchShare{});
  bytes[0] = 1;  // before samples had weight versions
  EXPECT_THROW(share_from_frame(bytes), BugError);
}

}  // namespace
}  // namespace slime::train
