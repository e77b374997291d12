// A response whose allowed tokens depend on the token before: on the CPU, and on a device that runs a step
// ahead, where other rows go on overlapping.

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "core/splitmix64.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;

/// The next id may be one to three above the last one, of `vocab` in a circle; the first one is below 4.
class Climbing final : public engine::TokenConstraint {
 public:
  explicit Climbing(int64_t vocab) : vocab_(vocab) {}
  void accept(TokenId token) override { last_ = token; }
  void allow(std::span<uint32_t> words) const override {
    for (int64_t step = 1; step <= 3; ++step) {
      const int64_t id = (last_ + step) % vocab_;
      words[static_cast<std::size_t>(id / 32)] |= 1U << (id % 32);
    }
  }

 private:
  const int64_t vocab_;
  TokenId last_ = 0;
};

bool climbs(const std::vector<TokenId>& ids, int64_t vocab) {
  TokenId last = 0;
  for (const TokenId id : ids) {
    const int64_t step = (id - last + vocab) % vocab;
    if (step < 1 || step > 3) return false;
    last = id;
  }
  return true;
}

/// Requests whose rid begins with "up" have one.
engine::EngineConfig constrained(int64_t vocab, engine::EngineConfig config = {}) {
  config.make_constraint =
      [vocab](const GenerateRequest& request) -> std::unique_ptr<engine::TokenConstraint> {
    if (!request.rid.starts_with("up")) return nullptr;
    return std::make_unique<Climbing>(vocab);
  };
  return config;
}

std::vector<GenerateRequest> some_requests() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(testing::sampled_request(testing::some_tokens(10 + i), 24, 50 + i));
    requests.back().rid = (i % 2 == 0 ? "up" : "free") + std::to_string(i);
  }
  return requests;
}

TEST(TokenConstraint, EachTokenIsOneThatTheTokenBeforeAllows) {
  testing::TestEngine bench("qwen3", constrained(384));
  testing::TestEngine plain("qwen3", {});
  for (const GenerateRequest& request : some_requests()) {
    const GenerateUpdate got = bench.generate(request), free = plain.generate(request);
    ASSERT_EQ(got.output_ids.size(), 24U);
    EXPECT_EQ(climbs(got.output_ids, 384), request.rid.starts_with("up")) << request.rid;
    if (!request.rid.starts_with("up")) {
      EXPECT_EQ(got.output_ids, free.output_ids);
    }
    // Of the masked distribution: among three ids none is rare.
    for (const float log_prob : got.output_log_probs) EXPECT_LE(log_prob, 0);
  }
}

TEST(TokenConstraint, AResponseThatGoesOnElsewhereIsAllowedWhatItsTokensAllow) {
  testing::TestEngine bench("qwen3", constrained(384));
  GenerateRequest request = some_requests()[0];
  const GenerateUpdate whole = bench.generate(request);
  request.rid = "up-again";
  request.input_ids.insert(request.input_ids.end(), whole.output_ids.begin(),
                           whole.output_ids.begin() + 9);
  request.num_sampled = 9;
  request.sampling.max_new_tokens -= 9;
  const GenerateUpdate rest = bench.generate(request);
  EXPECT_EQ(rest.output_ids,
            std::vector<TokenId>(whole.output_ids.begin() + 9, whole.output_ids.end()));
}

TEST(TokenConstraint, AMinimumLengthDoesNotForbidWhatItAllows) {
  testing::TestEngine bench("qwen3", constrained(384));
  GenerateRequest request = some_requests()[0];
  request.sampling.stop_token_ids = {1, 2, 3};  // the first token is one of them
  request.sampling.min_new_tokens = 5;
  const GenerateUpdate update = bench.generate(request);
  EXPECT_EQ(update.output_ids.size(), 1U);
  EXPECT_EQ(update.finish->kind, engine::FinishReason::Kind::kStop) << update.finish->message;
}

/// A device with a step in flight. The next token is a hash of the last one, or, with a mask, the first
/// allowed id after it.
class AheadRunner final : public engine::StepRunner {
 public:
  using Rows = std::vector<std::string>;  // rids of a step
  AheadRunner(bool runs_ahead, std::vector<Rows>& steps) : runs_ahead_(runs_ahead), steps_(steps) {}

  bool launch(std::span<const engine::Chunk> chunks) override {
    Rows rows;
    std::vector<std::optional<kernels::SampledToken>> step;
    std::vector<TokenId> sampled;
    for (const engine::Chunk& chunk : chunks) {
      const engine::Request& request = *chunk.request;
      rows.push_back(request.client.rid);
      step.emplace_back();
      if (!engine::draws_token(chunk)) continue;
      TokenId last = request.tokens.back();
      if (last == engine::kPendingToken) {
        EXPECT_EQ(request.constraint, nullptr) << "its last token is needed";
        last = last_sampled_.at(static_cast<std::size_t>(request.sampled_row));
      }
      auto id = static_cast<TokenId>(
          splitmix64(static_cast<uint64_t>(last) * 1009 + request.tokens.size()) % kVocab);
      if (request.constraint) {
        EXPECT_FALSE(request.allowed_W.empty());
        while (!engine::is_allowed(request.allowed_W, id)) id = (id + 1) % kVocab;
      }
      step.back() = kernels::SampledToken{.id = id, .log_prob = -1};
      sampled.push_back(id);
    }
    last_sampled_ = std::move(sampled);
    in_flight_.push_back(std::move(step));
    steps_.push_back(std::move(rows));
    return runs_ahead_;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    auto step = std::move(in_flight_.front());
    in_flight_.pop_front();
    return step;
  }
  void copy_page(engine::PageId, engine::PageId) override {}
  void copy_weights(const engine::FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

  static constexpr int64_t kVocab = 384;

 private:
  const bool runs_ahead_;
  std::vector<Rows>& steps_;
  std::vector<TokenId> last_sampled_;
  std::deque<std::vector<std::optional<kernels::SampledToken>>> in_flight_;
};

struct Outcome {
  std::map<std::string, std::vector<TokenId>> tokens;
  std::vector<AheadRunner::Rows> steps;
};

Outcome run(bool runs_ahead, const std::vector<GenerateRequest>& requests) {
  Outcome outcome;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  SystemClock clock;
  testing::Responses responses;
  engine::EngineConfig config = constrained(AheadRunner::kVocab);
  config.kv_cache_bytes = 8 << 20;
  {
    engine::Engine engine(*network, config, clock,
                          [&](model::Network&, const engine::StepRunnerConfig&) {
                            return std::make_unique<AheadRunner>(runs_ahead, outcome.steps);
                          });
    EXPECT_TRUE(engine.pause(engine::PauseMode::kInPlace));  // all are there in the first step
    for (const GenerateRequest& request : requests) engine.submit(request, responses.sink());
    EXPECT_TRUE(engine.resume());
    for (const GenerateRequest& request : requests) {
      const GenerateUpdate update = responses.wait(request.rid);
      EXPECT_EQ(update.finish->kind, engine::FinishReason::Kind::kLength) << update.finish->message;
      outcome.tokens[request.rid] = update.output_ids;
    }
  }
  return outcome;
}

TEST(TokenConstraint, OnADeviceThatRunsAheadTheOtherRowsAreInEachStep) {
  const std::vector<GenerateRequest> requests = some_requests();
  const Outcome ahead = run(true, requests), plain = run(false, requests);
  EXPECT_EQ(ahead.tokens, plain.tokens);
  for (const auto& [rid, tokens] : ahead.tokens) {
    ASSERT_EQ(tokens.size(), 24U);
    EXPECT_EQ(climbs(tokens, AheadRunner::kVocab), rid.starts_with("up")) << rid;
  }
  // 24 tokens take 24 steps with all rows; constrained ones then go on, each second one.
  for (std::size_t step = 0; step < 24; ++step) {
    const auto count = [&](std::string_view prefix) {
      return std::ranges::count_if(ahead.steps[step],
                                   [&](const std::string& rid) { return rid.starts_with(prefix); });
    };
    EXPECT_EQ(count("free"), 3) << step;
    EXPECT_EQ(count("up"), step % 2 == 0 ? 3 : 0) << step;
  }
  EXPECT_EQ(ahead.steps.size(), 24U + 12U);
}

}  // namespace
}  // namespace slime
