/// Drafts on a device that computes a step while the next one is planned: when steps are in flight, and responses,
/// which are those without drafts.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <stdexcept>

#include "core/splitmix64.h"
#include "engine/step_pipeline.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;

/// Its network is a chain of hashes: the key of a token is a hash of the key before it and of the token, and makes
/// the log-prob. Three of four tokens follow from the one before them alone, as texts of siblings tell, and one from
/// key and seed. Requests of seed 0 are not verified.
class ChainRunner final : public engine::StepRunner {
 public:
  struct Counts {
    std::atomic<int64_t> launches = 0, ahead = 0, with_drafts = 0;
    // Of the last chunk with drafts, for a test that makes the steps itself.
    const engine::Request* drafted = nullptr;
    int64_t drafted_launch = 0;
    int64_t failing_launch = 0;  // throws; 0: none does
  };
  ChainRunner(const engine::StepRunnerConfig& config, Counts& counts)
      : keys_(static_cast<std::size_t>(config.num_pages * kPage)), counts_(counts) {}

  void copy_page(engine::PageId from, engine::PageId to) override {
    std::copy_n(keys_.begin() + from * kPage, kPage, keys_.begin() + to * kPage);
  }
  bool launch(std::span<const engine::Chunk> chunks) override {
    if (++counts_.launches == counts_.failing_launch) throw std::runtime_error("no device");
    counts_.ahead += in_flight_.empty() ? 0 : 1;
    ChainStep step;
    std::vector<TokenId> sampled;
    for (const engine::Chunk& chunk : chunks) {
      const engine::Request& request = *chunk.request;
      if (chunk.num_drafts > 0) {
        ++counts_.with_drafts;
        counts_.drafted = &request;
        counts_.drafted_launch = counts_.launches;
      }
      std::vector<kernels::SampledToken>& drawn = step.emplace_back();
      for (int64_t i = 0; i < chunk.num_tokens; ++i) {
        const int64_t position = request.num_computed + i;
        TokenId id = request.tokens[position];
        if (id == engine::kPendingToken) {
          EXPECT_EQ(chunk.num_drafts, 0) << "drafts follow a token that is known";
          id = last_sampled_.at(request.sampled_row);
        }
        const uint64_t before = position == 0 ? 0 : key_at(request, position - 1);
        key_at(request, position) = splitmix64(before * 31 + static_cast<uint64_t>(id) * 1009);
        if (engine::draws_token(chunk) && i >= chunk.num_tokens - 1 - chunk.num_drafts)
          drawn.push_back(draw(request, position, id));
      }
      if (!drawn.empty()) sampled.push_back(drawn.front().id);
    }
    last_sampled_ = std::move(sampled);
    in_flight_.push_back(std::move(step));
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    collected_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    std::vector<std::optional<kernels::SampledToken>> first;
    for (const auto& drawn : collected_)
      first.push_back(drawn.empty() ? std::nullopt : std::optional(drawn.front()));
    return first;
  }
  bool verifies_drafts() const override { return true; }
  bool verifies_drafts_of(const engine::Request& request) const override {
    return request.seed != 0;
  }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override {
    return {collected_[chunk].begin() + 1, collected_[chunk].end()};
  }
  void copy_weights(const engine::FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

 private:
  using ChainStep = std::vector<std::vector<kernels::SampledToken>>;  // by chunk
  static constexpr int64_t kPage = 16;

  /// Behind the token `id` at `position`.
  kernels::SampledToken draw(const engine::Request& request, int64_t position, TokenId id) {
    const uint64_t key = key_at(request, position);
    const uint64_t next = key % 4 == 0 ? key + request.seed * 7919 : static_cast<uint64_t>(id);
    return {.id = static_cast<TokenId>(10 + splitmix64(next) % 200),
            .log_prob = -static_cast<float>((key >> 8) % 1000) / 1000};
  }
  uint64_t& key_at(const engine::Request& request, int64_t position) {
    return keys_[static_cast<std::size_t>(request.pages[position / kPage] * kPage +
                                          position % kPage)];
  }

  std::vector<uint64_t> keys_;
  Counts& counts_;
  std::vector<TokenId> last_sampled_;
  std::deque<ChainStep> in_flight_;
  ChainStep collected_;
};

struct ChainOutcome {
  std::vector<GenerateUpdate> updates;
  DraftCounts drafts;
  int64_t launches = 0, ahead = 0, with_drafts = 0, num_retractions = 0;
};

/// Two groups of eight samples, one after the other; requests whose seed is `seed_of` their number.
ChainOutcome run_chain(const EngineConfig& given, const std::function<uint64_t(uint64_t)>& seed_of,
                       int64_t new_tokens = 90) {
  const at::NoGradGuard no_grad;
  const SystemClock clock;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  EngineConfig config = given;
  if (config.kv_cache_bytes == EngineConfig{}.kv_cache_bytes) config.kv_cache_bytes = 8 << 20;
  ChainRunner::Counts counts;
  testing::Responses responses;
  engine::Engine engine(*network, config, clock,
                        [&](model::Network&, const engine::StepRunnerConfig& it) {
                          return std::make_unique<ChainRunner>(it, counts);
                        });
  ChainOutcome outcome;
  for (uint64_t group = 0; group < 2; ++group) {
    for (uint64_t i = 0; i < 8; ++i) {
      GenerateRequest request = testing::sampled_request(
          testing::some_tokens(21), new_tokens + static_cast<int64_t>(i), seed_of(8 * group + i));
      request.rid = std::to_string(8 * group + i);
      engine.submit(request, responses.sink());
    }
    for (uint64_t i = 0; i < 8; ++i) {
      outcome.updates.push_back(responses.wait(std::to_string(8 * group + i)));
      outcome.drafts += outcome.updates.back().drafts;
      outcome.num_retractions += outcome.updates.back().num_retractions;
    }
  }
  outcome.launches = counts.launches;
  outcome.ahead = counts.ahead;
  outcome.with_drafts = counts.with_drafts;
  return outcome;
}

uint64_t seed_behind(uint64_t number) { return 1 + number; }

void expect_same_responses(const ChainOutcome& got, const ChainOutcome& wanted) {
  ASSERT_EQ(got.updates.size(), wanted.updates.size());
  for (std::size_t i = 0; i < got.updates.size(); ++i) {
    EXPECT_EQ(got.updates[i].output_ids, wanted.updates[i].output_ids) << i;
    EXPECT_EQ(got.updates[i].output_log_probs, wanted.updates[i].output_log_probs) << i;
  }
}

TEST(EngineDraftsAhead, ResponsesAreThoseWithoutDrafts) {
  const ChainOutcome plain = run_chain({}, seed_behind);
  EXPECT_GT(plain.ahead, plain.launches / 2);
  for (const int64_t most : {1, 4, 9}) {
    EngineConfig config;
    config.drafts = {.most = most, .always = true};
    const ChainOutcome drafted = run_chain(config, seed_behind);
    expect_same_responses(drafted, plain);
    EXPECT_EQ(drafted.ahead, 0) << "each step may get drafts";
    EXPECT_LT(drafted.launches, plain.launches);
    EXPECT_GT(drafted.drafts.num_kept, 100);
    EXPECT_LT(drafted.drafts.num_kept, drafted.drafts.num_drafted);
  }
}

TEST(EngineDraftsAhead, ResponsesAreThoseWithoutDraftsWherePagesAreScarce) {
  EngineConfig config;
  config.kv_cache_bytes = 480 << 10;  // 20 pages; a request takes 8
  const ChainOutcome plain = run_chain(config, seed_behind);
  config.drafts = {.most = 6, .always = true};
  const ChainOutcome drafted = run_chain(config, seed_behind);
  expect_same_responses(drafted, plain);
  EXPECT_GT(plain.num_retractions + drafted.num_retractions, 0);
}

TEST(EngineDraftsAhead, ResponsesAreThoseWithoutDraftsWhereTheyAreChosen) {
  EngineConfig config;
  const ChainOutcome plain = run_chain(config, seed_behind);
  config.drafts = {.most = 6};
  expect_same_responses(run_chain(config, seed_behind), plain);
}

TEST(EngineDraftsAhead, RequestsThatTheRunnerDoesNotVerifyGetNone) {
  EngineConfig config;
  const auto every_other = [](uint64_t number) { return number % 2 * (1 + number); };
  const ChainOutcome plain = run_chain(config, every_other);
  config.drafts = {.most = 4, .always = true};
  const ChainOutcome drafted = run_chain(config, every_other);
  expect_same_responses(drafted, plain);
  for (std::size_t i = 0; i < drafted.updates.size(); ++i)
    EXPECT_EQ(drafted.updates[i].drafts.num_drafted > 0, i % 2 == 1) << i;
}

/// All but one step of 9, 17 and from then on 33.
TEST(EngineDraftsAhead, StepsRunAheadWhereNoneGetsDrafts) {
  EngineConfig config;
  config.drafts = {.most = 4};
  const ChainOutcome drafted = run_chain(
      config, [](uint64_t) { return 0; }, 150);
  EXPECT_EQ(drafted.with_drafts, 0);
  EXPECT_GT(drafted.ahead, drafted.launches * 8 / 10);
  EXPECT_LT(drafted.ahead, drafted.launches);
}

/// A millisecond later at each look, so that steps take about equally long.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::milliseconds(++num_looks_)); }
  double unix_seconds() const override { return static_cast<double>(num_looks_) / 1000; }

 private:
  mutable std::atomic<int64_t> num_looks_{0};
};

/// Steps by hand over a cache of so many pages.
class ChainSteps {
 public:
  ChainSteps(model::Network& network, int64_t num_pages, engine::DraftSettings drafts = {.most = 6})
      : config_(engine::completed(
            {.kv_cache_bytes = num_pages * engine::kv_page_bytes(network, at::kFloat),
             .drafts = drafts},
            network)),
        progress_(clock_),
        pipeline_(network, config_, clock_, progress_,
                  [this](model::Network&, const engine::StepRunnerConfig& it) {
                    return std::make_unique<ChainRunner>(it, counts_);
                  }) {}

  const ChainRunner::Counts& counts() const { return counts_; }
  bool has_work() const { return pipeline_.has_work(); }
  void step() { pipeline_.step(); }
  /// The steps fail at this launch.
  void step_until_launch_fails(int64_t launch) {
    counts_.failing_launch = launch;
    try {
      while (has_work()) step();
      FAIL() << "no launch failed";
    } catch (const std::runtime_error& error) {
      pipeline_.fail_all(error);
    }
  }
  void admit(const std::string& rid, GenerateRequest request) {
    request.rid = rid;
    pipeline_.admit({.handle = {},
                     .request = std::move(request),
                     .on_update = [this](const GenerateUpdate& it) { take(it); },
                     .submitted = clock_.now()});
  }
  bool has_ended(const std::string& rid) const {
    const auto found = answers_.find(rid);
    return found != answers_.end() && found->second.finish.has_value();
  }
  const GenerateUpdate& answer(const std::string& rid) const { return answers_.at(rid); }
  /// How many steps were launched when each update of a request came.
  const std::vector<int64_t>& launches_when_told(const std::string& rid) const {
    return launches_when_told_.at(rid);
  }

 private:
  /// Updates have the tokens since the last one.
  void take(const GenerateUpdate& update) {
    launches_when_told_[update.rid].push_back(counts_.launches);
    GenerateUpdate& answer = answers_[update.rid];
    answer.finish = update.finish;
    answer.output_ids.insert(answer.output_ids.end(), update.output_ids.begin(),
                             update.output_ids.end());
    answer.output_log_probs.insert(answer.output_log_probs.end(), update.output_log_probs.begin(),
                                   update.output_log_probs.end());
  }

  SteadyClock clock_;
  const EngineConfig config_;
  engine::EngineProgress progress_;
  ChainRunner::Counts counts_;
  std::map<std::string, GenerateUpdate> answers_;
  std::map<std::string, std::vector<int64_t>> launches_when_told_;
  engine::StepPipeline pipeline_;
};

/// Four requests without drafts decode, and steps run ahead. One more joins whose prompt is cached but for its last
/// token, so that it has drafts in its first step, and in the next step the four need a page each: there are too few,
/// the newest request is retracted, and then its drafts turn out to be right.
TEST(EngineDraftsAhead, DraftsOfARequestThatWasRetractedMeanwhileAreKeptWithoutItsKeys) {
  constexpr int64_t kPage = 16, kCached = 2 * kPage + 1, kNewTokens = 12, kEarlier = 8;
  const at::NoGradGuard no_grad;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  const GenerateRequest drafted =
      testing::sampled_request(testing::some_tokens(kCached, 100), kNewTokens, 5);
  int64_t num_retracted = 0;
  for (int64_t num_pages = 16; num_pages <= 18; ++num_pages) {
    for (int64_t prompt = kPage + 1; prompt <= kPage + 6; ++prompt) {
      ChainSteps steps(*network, num_pages);
      // Until drafts of this text are chosen.
      for (int64_t i = 0; i < kEarlier; ++i) {
        steps.admit("earlier " + std::to_string(i), drafted);
        while (steps.has_work()) steps.step();
      }
      for (TokenId i = 0; i < 4; ++i) {
        steps.admit("plain " + std::to_string(i),
                    testing::sampled_request(testing::some_tokens(prompt, 3 + i),
                                             4 * kPage - 4 - prompt, /*seed=*/0));
      }
      // The next step computes their last tokens on the third page.
      for (int64_t computed = prompt; computed < 3 * kPage; ++computed) steps.step();
      const int64_t num_launches = steps.counts().launches;
      steps.admit("drafted", drafted);
      while (steps.has_work()) {
        const ChainRunner::Counts& counts = steps.counts();
        const int64_t num_ahead = counts.ahead;
        steps.step();
        if (counts.drafted_launch <= num_launches || steps.has_ended("drafted")) continue;
        // The step with drafts was in flight when this one was planned, and is collected now.
        const bool was_in_flight =
            counts.launches == counts.drafted_launch + 1 && counts.ahead > num_ahead;
        if (!was_in_flight || !counts.drafted->pages.empty()) continue;
        ++num_retracted;
        EXPECT_GT(counts.drafted->num_new_tokens(), 1) << "a draft was right";
        EXPECT_EQ(counts.drafted->num_computed, 0) << "nothing is, without pages";
      }
      EXPECT_EQ(steps.answer("drafted").output_ids, steps.answer("earlier 0").output_ids);
      EXPECT_EQ(steps.answer("drafted").output_log_probs,
                steps.answer("earlier 0").output_log_probs);
    }
  }
  EXPECT_GT(num_retracted, 0);
}

/// Both join in the first step, which draws the first token of each; the shorter one ends before the other.
TEST(EngineDraftsAhead, CallersAreToldBehindTheNextLaunch) {
  const at::NoGradGuard no_grad;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  ChainSteps steps(*network, 64, {.most = 4, .always = true});
  steps.admit("short", testing::sampled_request(testing::some_tokens(21, 100), 6, 5));
  steps.admit("long", testing::sampled_request(testing::some_tokens(21), 60, 7));
  while (steps.has_work()) steps.step();
  EXPECT_EQ(steps.counts().ahead, 0);
  const std::vector<int64_t>& of_long = steps.launches_when_told("long");
  ASSERT_GT(of_long.size(), 8);
  EXPECT_EQ(steps.answer("long").output_ids.size(), 60);
  for (std::size_t i = 1; i + 1 < of_long.size(); ++i)
    EXPECT_EQ(of_long[i], static_cast<int64_t>(i) + 2) << "of step " << i + 1;
  EXPECT_EQ(of_long.back(), steps.counts().launches) << "nothing is launched behind the last one";
  const std::vector<int64_t>& of_short = steps.launches_when_told("short");
  EXPECT_EQ(steps.answer("short").output_ids.size(), 6);
  for (std::size_t i = 1; i < of_short.size(); ++i)
    EXPECT_EQ(of_short[i], static_cast<int64_t>(i) + 2) << "of step " << i + 1;
}

TEST(EngineDraftsAhead, WhereALaunchFailsCallersHaveTheTokensBefore) {
  const at::NoGradGuard no_grad;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  const auto request = [](uint64_t seed, int64_t num_tokens) {
    return testing::sampled_request(testing::some_tokens(21, static_cast<TokenId>(seed)),
                                    num_tokens, seed);
  };
  const engine::DraftSettings drafts{.most = 4, .always = true};
  ChainSteps whole(*network, 64, drafts), failing(*network, 64, drafts);
  for (ChainSteps* steps : {&whole, &failing}) {
    steps->admit("long", request(7, 60));
    steps->admit("one token", request(5, 1));
  }
  while (whole.has_work()) whole.step();
  failing.step_until_launch_fails(2);
  EXPECT_FALSE(failing.has_work());
  EXPECT_EQ(failing.answer("one token").output_ids, whole.answer("one token").output_ids);
  EXPECT_EQ(failing.answer("one token").finish->kind, whole.answer("one token").finish->kind);
  const GenerateUpdate& cut = failing.answer("long");
  ASSERT_EQ(cut.output_ids.size(), 1) << "of the step before the one that failed";
  EXPECT_EQ(cut.output_ids[0], whole.answer("long").output_ids[0]);
  EXPECT_EQ(cut.finish->kind, engine::FinishReason::Kind::kAbort);
}

}  // namespace
}  // namespace slime
