/// Models with windows in some layers on a device that has a step in flight, like a GPU: requests that end,
/// are aborted or retracted while their pages come and go never read a page of somebody else's, nor one that
/// nobody verified.

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "core/random.h"
#include "core/splitmix64.h"
#include "engine/page_tables.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using engine::PageId;

constexpr const char* kModel = "gemma3_text";  // windows of 16 tokens, a context of 256
constexpr int64_t kPage = 16, kWindow = 16, kGroups = 3;

uint64_t hash_behind(uint64_t before, TokenId id) {
  return splitmix64(before * 31 + static_cast<uint64_t>(id) * 1009 + 1);
}
TokenId sampled_behind(uint64_t hash) { return static_cast<TokenId>(hash % 300); }

/// The key of a token is a hash of all tokens up to it, and another one in each group of layers. Each
/// token reads what its layers would. Fast steps write other keys, which they alone may read, and draw another token
/// now and then.
class ReadingRunner final : public engine::StepRunner {
 public:
  ReadingRunner(model::Network&, const engine::StepRunnerConfig& config)
      : keys_(static_cast<std::size_t>(config.num_pages * kPage)) {
    EXPECT_EQ(config.num_window_groups, kGroups);
  }

  void copy_page(PageId from, PageId to) override {
    std::copy_n(keys_.begin() + from * kPage, kPage, keys_.begin() + to * kPage);
  }
  bool has_exact_steps() const override { return true; }
  bool launch(std::span<const engine::Chunk> chunks) override {
    Step step;
    std::vector<TokenId> sampled;
    for (const engine::Chunk& chunk : chunks) {
      const engine::Request& request = *chunk.request;
      const uint64_t noise = chunk.is_tentative ? kFastNoise : 0;
      const auto num_tokens = static_cast<int64_t>(request.tokens.size());
      // Of the last verified token and those behind it.
      const int64_t first_fast = !chunk.is_tentative           ? num_tokens
                                 : request.tentative.is_open() ? request.tentative.begin - 1
                                                               : num_tokens - 1;
      std::vector<uint64_t> hashes;
      const int64_t end = request.num_computed + chunk.num_tokens;
      for (int64_t i = 0; i < end; ++i) {
        TokenId id = request.tokens[static_cast<std::size_t>(i)];
        if (id == engine::kPendingToken)
          id = last_sampled_.at(static_cast<std::size_t>(request.sampled_row));
        hashes.push_back(hash_behind(hashes.empty() ? 0 : hashes.back(), id));
      }
      for (std::size_t group = 0; group <= kGroups; ++group) {
        for (int64_t i = request.num_computed; i < end; ++i)
          key_at(request, group, i) = hashes[static_cast<std::size_t>(i)] + group + noise;
        const int64_t first =
            group == 0 ? 0 : std::max<int64_t>(0, request.num_computed - kWindow + 1);
        for (int64_t i = first; i < end; ++i)
          EXPECT_EQ(key_at(request, group, i),
                    hashes[static_cast<std::size_t>(i)] + group + (i < first_fast ? 0 : noise))
              << "position " << i << " of group " << group;
      }
      step.tokens.emplace_back();
      step.behind.emplace_back();
      if (!engine::draws_token(chunk)) continue;
      for (int64_t i = end - 1 - chunk.num_drafts; i < end; ++i) {
        uint64_t hash = hashes[static_cast<std::size_t>(i)];
        if (chunk.is_tentative && hash / 1000 % 6 == 0) ++hash;
        step.behind.back().push_back({.id = sampled_behind(hash), .log_prob = -1});
      }
      step.tokens.back() = step.behind.back().front();
      step.behind.back().erase(step.behind.back().begin());
      sampled.push_back(step.tokens.back()->id);
    }
    last_sampled_ = std::move(sampled);
    in_flight_.push_back(std::move(step));
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    collected_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    return collected_.tokens;
  }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk) override {
    return std::move(collected_.behind.at(chunk));
  }
  void copy_weights(const engine::FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

 private:
  struct Step {
    std::vector<std::optional<kernels::SampledToken>> tokens;
    std::vector<std::vector<kernels::SampledToken>> behind;
  };
  static constexpr uint64_t kFastNoise = 1000;

  uint64_t& key_at(const engine::Request& request, std::size_t group, int64_t position) {
    const PageId page =
        engine::table_of(request, group).at(static_cast<std::size_t>(position / kPage));
    return keys_.at(static_cast<std::size_t>(int64_t{page} * kPage + position % kPage));
  }

  std::vector<uint64_t> keys_;
  std::vector<TokenId> last_sampled_;
  std::deque<Step> in_flight_;
  Step collected_;
};

/// Prompts of groups of four, some of which begin alike; a few tokens end a response.
GenerateRequest request_of(int64_t number) {
  const int64_t group = number / 4;
  GenerateRequest request =
      testing::greedy_request(testing::some_tokens(5 + 29 * (group % 6), group % 3), 0);
  request.sampling.max_new_tokens = 20 + number % 7 * 10;
  request.sampling.ignore_eos = false;
  request.sampling.stop_token_ids = {0, 1, 2, 3, 4};
  request.rid = std::to_string(number);
  return request;
}

std::vector<TokenId> expected_response(const GenerateRequest& request) {
  uint64_t hash = 0;
  for (const TokenId id : request.input_ids) hash = hash_behind(hash, id);
  std::vector<TokenId> response;
  while (static_cast<int64_t>(response.size()) < request.sampling.max_new_tokens) {
    response.push_back(sampled_behind(hash));
    if (std::ranges::count(request.sampling.stop_token_ids, response.back()) > 0) break;
    hash = hash_behind(hash, response.back());
  }
  return response;
}

class EngineWindowsInFlight : public ::testing::TestWithParam<int64_t> {};

TEST_P(EngineWindowsInFlight, NobodyReadsAPageOfSomebodyElses) {
  const auto network =
      model::load_network(golden_models::directory(kModel), model::Precision::of("float32"));
  // Tight: some three requests run at once. Roomy: all that ended stay.
  for (const int64_t num_pages : {140, 6000}) {
    engine::EngineConfig config{.max_running_requests = 16, .max_prefill_tokens = 24};
    config.eos_token_ids = {0};
    config.verify_tokens = GetParam();
    config.kv_cache_bytes = num_pages * engine::kv_page_bytes(*network, at::kFloat, kGroups);
    const SystemClock clock;
    testing::Responses responses;
    engine::Engine engine(*network, config, clock,
                          [](model::Network& model, const engine::StepRunnerConfig& step) {
                            return std::make_unique<ReadingRunner>(model, step);
                          });
    constexpr int64_t kRequests = 240;
    for (int64_t i = 0; i < kRequests; ++i) {
      engine.submit(request_of(i), responses.sink());
      const auto event = static_cast<int64_t>(uniform(5, 1, i) * 20);
      if (event == 0) engine::or_throw(engine.abort_prefix(std::to_string(i - 9)));
      if (event == 1) {
        engine::or_throw(engine.pause(engine::PauseMode::kRetract));
        engine::or_throw(engine.resume());
      }
      if (event == 2) {
        engine::or_throw(
            engine.update_weights({.version = i,
                                   .source = engine::FromNetwork{network.get()},
                                   .running = i % 2 == 0 ? engine::RunningRequests::kKeep
                                                         : engine::RunningRequests::kRecompute}));
      }
      if (event == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    int64_t num_whole = 0;
    for (int64_t i = 0; i < kRequests; ++i) {
      const GenerateUpdate out = responses.wait(std::to_string(i));
      const std::vector<TokenId> expected = expected_response(request_of(i));
      ASSERT_LE(out.output_ids.size(), expected.size()) << i;
      EXPECT_TRUE(std::equal(out.output_ids.begin(), out.output_ids.end(), expected.begin())) << i;
      if (out.finish->kind == engine::FinishReason::Kind::kAbort) continue;
      EXPECT_EQ(out.output_ids.size(), expected.size()) << i;
      ++num_whole;
    }
    EXPECT_GT(num_whole, kRequests / 2);
    const DraftCounts counts = engine.load()->drafts;
    EXPECT_EQ(counts.num_redrawn > 0, GetParam() > 0);
    if (GetParam() > 0) {
      EXPECT_NEAR(counts.redrawn_share(), 1.0 / 6, 0.05);
    }
    EXPECT_GT(engine.load()->num_kv_tokens_given_back, 0);
    EXPECT_TRUE(*engine.flush_cache());
    EXPECT_EQ(engine.load()->num_kv_tokens_used, 0) << "pages leaked";
  }
}

INSTANTIATE_TEST_SUITE_P(VerifyTokens, EngineWindowsInFlight, ::testing::Values(0, 1, 8, 20));

}  // namespace
}  // namespace slime
