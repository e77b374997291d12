// A response whose allowed tokens depend on the token before: on the CPU, and on a device that runs a step
// ahead, where other rows go on overlapping.

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>

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
  Allowed allow(std::span<uint32_t> words) override {
    for (int64_t step = 1; step <= 3; ++step) {
      const int64_t id = (last_ + step) % vocab_;
      words[static_cast<std::size_t>(id / 32)] |= 1U << (id % 32);
    }
    return Allowed::kSome;
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
class ClimbingSource final : public engine::ConstraintSource {
 public:
  explicit ClimbingSource(int64_t vocab) : vocab_(vocab) {}
  bool constrains(const GenerateRequest& request) const override {
    return request.rid.starts_with("up");
  }
  void make(const GenerateRequest&, Made made) override {
    made(std::make_unique<Climbing>(vocab_));
  }

 private:
  const int64_t vocab_;
};

engine::EngineConfig constrained(int64_t vocab, engine::EngineConfig config = {}) {
  config.constraints = std::make_shared<ClimbingSource>(vocab);
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

/// Of the distribution that each token was drawn from, and of the one without the constraint.
TEST(TokenConstraint, LogProbsWithoutItAreThoseOfTheModel) {
  testing::TestEngine bench("qwen3", constrained(384));
  GenerateRequest request = some_requests()[0];
  request.sampling.temperature = 0.8;
  request.sampling.logit_bias = {{7, 2.0}};
  request.return_free_logprobs = true;
  const GenerateUpdate got = bench.generate(request);
  ASSERT_EQ(got.output_free_log_probs.size(), 24U);
  EXPECT_EQ(got.num_constrained, 24);
  // A free engine that has read the same tokens.
  testing::TestEngine plain("qwen3", {});
  std::vector<TokenId> tokens = request.input_ids;
  for (std::size_t i = 0; i < got.output_ids.size(); ++i) {
    GenerateRequest one = request;
    one.rid = "free" + std::to_string(i);
    one.input_ids = tokens;
    one.return_free_logprobs = false;
    one.sampling.max_new_tokens = 1;
    one.top_logprobs_num = 384;
    const GenerateUpdate free = plain.generate(one);
    const auto& all = free.output_top.at(0);
    const auto told = std::ranges::find(all, got.output_ids[i], &std::pair<float, TokenId>::second);
    ASSERT_NE(told, all.end());
    EXPECT_NEAR(got.output_free_log_probs[i], told->first, 2e-5) << i;  // another batch's sums
    EXPECT_LT(got.output_free_log_probs[i], got.output_log_probs[i]);
    tokens.push_back(got.output_ids[i]);
  }
}

/// Holds what it is asked for.
class SlowSource final : public engine::ConstraintSource {
 public:
  bool constrains(const GenerateRequest& request) const override {
    return request.rid.starts_with("up");
  }
  void make(const GenerateRequest&, Made made) override {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(made));
    changed_.notify_all();
  }
  Made wait(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() > index; });
    return asked_[index];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Made> asked_;
};

struct SlowEngine {
  std::shared_ptr<SlowSource> source = std::make_shared<SlowSource>();
  testing::Responses responses;
  testing::TestEngine bench{"qwen3", {.constraints = source}};

  engine::RequestHandle submit(const std::string& rid) {
    GenerateRequest request = some_requests()[0];
    request.rid = rid;
    return bench.engine().submit(request, responses.sink());
  }
};

TEST(TokenConstraint, OthersGoOnWhileOneIsMade) {
  SlowEngine slow;
  slow.submit("up");
  slow.submit("free");
  EXPECT_EQ(slow.responses.wait("free").output_ids.size(), 24U);
  EXPECT_EQ(slow.bench.engine().load()->num_waiting, 1);
  slow.source->wait(0)(std::make_unique<Climbing>(384));
  EXPECT_TRUE(climbs(slow.responses.wait("up").output_ids, 384));
}

TEST(TokenConstraint, ARequestWhoseOneCannotBeMadeIsRefused) {
  SlowEngine slow;
  slow.submit("up");
  slow.source->wait(0)(
      tl::make_unexpected(engine::aborted(engine::FinishReason::Cause::kBadRequest, "regex: (")));
  const GenerateUpdate update = slow.responses.wait("up");
  EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kBadRequest);
  EXPECT_EQ(update.finish->message, "regex: (");
}

TEST(TokenConstraint, ARequestIsAbortedWhileItIsMadeByHandleAndByPrefix) {
  SlowEngine slow;
  const engine::RequestHandle first = slow.submit("up-1");
  slow.submit("up-2");
  EXPECT_TRUE(slow.bench.engine().abort(first));
  EXPECT_EQ(slow.responses.wait("up-1").finish->kind, engine::FinishReason::Kind::kAbort);
  EXPECT_TRUE(slow.bench.engine().abort_prefix("up-"));
  EXPECT_EQ(slow.responses.wait("up-2").finish->kind, engine::FinishReason::Kind::kAbort);
  slow.source->wait(0)(std::make_unique<Climbing>(384));  // nobody waits for it any more
  EXPECT_EQ(slow.bench.engine().load()->num_waiting, 0);
}

TEST(TokenConstraint, AnEngineThatEndsTellsThoseThatWait) {
  auto source = std::make_shared<SlowSource>();
  testing::Responses responses;
  engine::ConstraintSource::Made late;
  {
    testing::TestEngine bench("qwen3", {.constraints = source});
    GenerateRequest request = some_requests()[0];
    bench.engine().submit(request, responses.sink());
    late = source->wait(0);
  }
  EXPECT_EQ(responses.wait("up0").finish->cause, engine::FinishReason::Cause::kShuttingDown);
  late(std::make_unique<Climbing>(384));
}

/// Nothing is allowed behind so many tokens.
class DeadEnd final : public engine::TokenConstraint {
 public:
  DeadEnd(int length, bool is_over) : length_(length), ends_(is_over) {}
  void accept(TokenId) override { --length_; }
  Allowed allow(std::span<uint32_t> words) override {
    if (length_ == 0) return Allowed::kNone;
    words[1] = 1;
    return Allowed::kSome;
  }
  std::string problem() const override { return "ebnf: nothing goes on"; }
  bool is_over() const override { return ends_ && length_ == 0; }

 private:
  int length_;
  const bool ends_;
};

TEST(TokenConstraint, WhereNothingIsAllowedTheResponseEndsAndOthersGoOn) {
  SlowEngine slow;
  slow.submit("up-dead");
  slow.source->wait(0)(std::make_unique<DeadEnd>(3, false));
  slow.submit("up-over");
  slow.source->wait(1)(std::make_unique<DeadEnd>(3, true));
  slow.submit("free");
  const GenerateUpdate dead = slow.responses.wait("up-dead"), over = slow.responses.wait("up-over");
  EXPECT_EQ(dead.output_ids, (std::vector<TokenId>{32, 32, 32}));
  EXPECT_EQ(dead.finish->cause, engine::FinishReason::Cause::kBadRequest);
  EXPECT_EQ(dead.finish->message, "ebnf: nothing goes on");
  EXPECT_EQ(over.output_ids, dead.output_ids);
  EXPECT_EQ(over.finish->kind, engine::FinishReason::Kind::kStop);
  EXPECT_EQ(slow.responses.wait("free").output_ids.size(), 24U);
}

/// Climbing, once the gate is open.
class Gated final : public engine::TokenConstraint {
 public:
  explicit Gated(std::shared_future<void> gate) : gate_(std::move(gate)) {}
  void accept(TokenId token) override { climbing_.accept(token); }
  Allowed allow(std::span<uint32_t> words) override {
    gate_.wait();
    return climbing_.allow(words);
  }
  bool is_quick() const override { return false; }

 private:
  const std::shared_future<void> gate_;
  Climbing climbing_{384};
};

TEST(TokenConstraint, OthersGoOnWhileItIsAskedWhatItAllows) {
  testing::TestEngine quick("qwen3", constrained(384));
  const GenerateUpdate expected = quick.generate(some_requests()[0]);
  SlowEngine slow;
  std::promise<void> gate;
  slow.submit("up");
  slow.source->wait(0)(std::make_unique<Gated>(gate.get_future().share()));
  slow.submit("free");
  EXPECT_EQ(slow.responses.wait("free").output_ids.size(), 24U);
  EXPECT_TRUE(slow.bench.engine().abort_prefix("nobody"));  // calls are heard meanwhile
  gate.set_value();
  EXPECT_EQ(slow.responses.wait("up").output_ids, expected.output_ids);
}

TEST(TokenConstraint, ARequestIsAbortedWhileItIsAskedWhatItAllows) {
  std::promise<void> gate;
  {
    SlowEngine slow;
    const engine::RequestHandle handle = slow.submit("up");
    slow.source->wait(0)(std::make_unique<Gated>(gate.get_future().share()));
    EXPECT_TRUE(slow.bench.engine().abort(handle));
    EXPECT_EQ(slow.responses.wait("up").finish->kind, engine::FinishReason::Kind::kAbort);
    gate.set_value();
  }
}

TEST(TokenConstraint, AnEngineWithoutASourceRefusesGrammarsByName) {
  testing::TestEngine bench("qwen3", {});
  GenerateRequest request = some_requests()[1];
  request.sampling.regex = "a";
  const GenerateUpdate update = bench.generate(request);
  EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kBadRequest);
  EXPECT_NE(update.finish->message.find("regex asks for constrained decoding"), std::string::npos);
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
