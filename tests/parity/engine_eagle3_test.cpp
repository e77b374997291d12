/// An engine that drafts with an EAGLE-3 model: its guesses are the reference's, its responses those of an engine
/// without drafts, to the bit.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "draft_cases.h"
#include "eagle3_cases.h"
#include "engine/model_runner.h"
#include "model/token_batch_for_tests.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using engine::Draft;
using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using model::Eagle3Files;
using model::Eagle3Reference;
using testing::answers_to;
using testing::drafting_by;
using testing::eagle3_target;
using testing::expect_equal;
using testing::greedy_request;
using testing::load_files;
using testing::random_model;
using testing::requests_of_all_forms;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

/// Of float32 over a target of three layers and the draft model's.
constexpr double kChanceTolerance = 1e-4;

/// Steps of one request, by hand.
class Eagle3Steps {
 public:
  struct Outcome {
    std::vector<TokenId> drawn;  // behind the last known token, and behind each draft
    std::vector<Draft> foretold;
  };

  Eagle3Steps(model::Network& network, std::shared_ptr<const model::Eagle3> draft,
              const std::vector<TokenId>& prompt)
      : runner_(network,
                {.kv_dtype = at::kFloat, .num_pages = 8, .draft_model = std::move(draft)}) {
    request_.client.sampling.temperature = 0;
    request_.client.sampling.max_new_tokens = 64;
    request_.prompt_length = std::ssize(prompt);
    request_.max_tokens = request_.prompt_length + 64;
    request_.tokens = prompt;
    request_.pages = {3, 0, 5, 1, 7};
  }

  engine::Request& request() { return request_; }

  /// The next `num_tokens` missing tokens, with `drafts` behind them.
  Outcome step(int64_t num_tokens, const std::vector<TokenId>& drafts, int64_t num_foretold) {
    request_.tokens.insert(request_.tokens.end(), drafts.begin(), drafts.end());
    const engine::Chunk chunk{.request = &request_,
                              .num_tokens = num_tokens + std::ssize(drafts),
                              .num_drafts = std::ssize(drafts),
                              .feeds_draft_layer = true,
                              .num_foretold = num_foretold};
    const bool completes = chunk.completes();
    EXPECT_FALSE(runner_.launch(std::span(&chunk, 1)));
    request_.tokens.resize(request_.tokens.size() - drafts.size());
    request_.num_computed += num_tokens;
    Outcome outcome;
    const auto sampled = runner_.collect();
    if (!completes) return outcome;
    outcome.drawn.push_back(sampled.at(0)->id);
    for (const auto& token : runner_.take_behind_drafts(0)) outcome.drawn.push_back(token.id);
    outcome.foretold = runner_.take_foretold(0);
    return outcome;
  }
  Outcome step(int64_t num_foretold) {
    return step(request_.num_missing(), /*drafts=*/{}, num_foretold);
  }

 private:
  engine::ModelRunner runner_;
  engine::Request request_;
};

class Eagle3OfModel : public ::testing::TestWithParam<const char*> {
 protected:
  Eagle3OfModel()
      : network_(eagle3_target(GetParam())),
        files_(model::random_eagle3(network_->config())),
        draft_(load_files(files_, network_->config())),
        prompt_(some_tokens(21, 5, std::min<int64_t>(network_->config().vocab_size, 300))) {}

  Eagle3Steps::Outcome anew(const std::vector<TokenId>& tokens, int64_t num_foretold) {
    return Eagle3Steps(*network_, draft_, tokens).step(num_foretold);
  }
  /// The reference's guesses behind `tokens` and `drawn`.
  std::vector<Eagle3Reference::Guess> expected(const std::vector<TokenId>& tokens, TokenId drawn,
                                               int64_t count) {
    model::TokenBatch batch = model::sequence_of({tokens.begin(), tokens.end()});
    model::HiddenCapture captured{.layers = draft_->form().captured_layers};
    batch.captured = &captured;
    model::TreeAttention attention(batch);
    network_->forward(batch, attention);
    model::TokenBatch all;
    all.ids_T = at::arange(network_->config().vocab_size, at::kLong);
    std::vector<int64_t> behind(tokens.begin() + 1, tokens.end());
    behind.push_back(drawn);
    return Eagle3Reference(files_).chain(captured.hidden_TC, behind, network_->embedded(all),
                                         count);
  }
  void expect_guesses(const Eagle3Steps::Outcome& got, const std::vector<TokenId>& tokens,
                      std::size_t drawn, int64_t count) {
    const auto guesses = expected(tokens, got.drawn.at(drawn), count);
    ASSERT_EQ(std::ssize(got.foretold), count);
    for (std::size_t i = 0; i < guesses.size(); ++i) {
      EXPECT_EQ(got.foretold[i].id, guesses[i].token) << i;
      EXPECT_NEAR(got.foretold[i].chance, guesses[i].chance, kChanceTolerance) << i;
    }
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<model::Network> network_;
  const Eagle3Files files_;
  std::shared_ptr<const model::Eagle3> draft_;
  std::vector<TokenId> prompt_;
};

TEST_P(Eagle3OfModel, GuessesAreTheReferencesChain) {
  expect_guesses(anew(prompt_, 4), prompt_, 0, 4);
}

TEST_P(Eagle3OfModel, GuessesBehindAPromptInChunksAreThose) {
  for (const int64_t first : {1, 5, 16, 20}) {
    Eagle3Steps steps(*network_, draft_, prompt_);
    EXPECT_TRUE(steps.step(first, {}, 0).drawn.empty());
    expect_guesses(steps.step(3), prompt_, 0, 3);
  }
}

TEST_P(Eagle3OfModel, GuessesBehindVerifiedDraftsAreThoseOfABeginning) {
  std::vector<TokenId> drawn;
  Eagle3Steps plain(*network_, draft_, prompt_);
  for (int i = 0; i < 4; ++i) {
    drawn.push_back(plain.step(0).drawn.at(0));
    plain.request().tokens.push_back(drawn.back());
  }
  const auto other = [](TokenId id) { return id == 7 ? 8 : 7; };
  for (int num_right = 0; num_right <= 3; ++num_right) {
    SCOPED_TRACE(num_right);
    Eagle3Steps steps(*network_, draft_, prompt_);
    steps.step(4);  // its later passes write behind the last token
    steps.request().tokens.push_back(drawn[0]);
    std::vector<TokenId> drafts(drawn.begin() + 1, drawn.begin() + 4);
    for (int i = num_right; i < 3; ++i) drafts[i] = other(drafts[i]);
    const Eagle3Steps::Outcome verified = steps.step(1, drafts, 3);
    ASSERT_EQ(verified.drawn.size(), 4U);
    std::vector<TokenId> tokens = prompt_;
    tokens.insert(tokens.end(), drawn.begin(), drawn.begin() + 1 + num_right);
    expect_guesses(verified, tokens, static_cast<std::size_t>(num_right), 3);
  }
}

TEST_P(Eagle3OfModel, ResponsesAreThoseWithoutDrafts) {
  TestEngine plain(eagle3_target(GetParam()), {});
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  for (const bool texts : {false, true}) {
    TestEngine bench(eagle3_target(GetParam()), drafting_by(draft_, 3, texts));
    const std::vector<GenerateUpdate> got = answers_to(requests, bench);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
    const DraftCounts counts = bench.engine().load()->drafts;
    EXPECT_GT(counts.num_drafted, counts.num_steps / 2);
    // The second round repeats the first.
    if (texts) {
      EXPECT_GT(counts.num_kept, counts.num_steps / 4);
    }
  }
}

TEST_P(Eagle3OfModel, ResponsesAreThoseWithoutDraftsInShortChunksWhereDraftsAreChosen) {
  EngineConfig config;
  config.max_prefill_tokens = 7;
  TestEngine plain(eagle3_target(GetParam()), config);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  for (const bool always : {false, true}) {
    EngineConfig drafting = drafting_by(draft_, 4, /*texts=*/true, always);
    drafting.max_prefill_tokens = config.max_prefill_tokens;
    TestEngine bench(eagle3_target(GetParam()), drafting);
    const std::vector<GenerateUpdate> got = answers_to(requests, bench);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  }
}

/// One prompt for many, long enough for whole pages behind any window; the last of them end where the context does.
TEST_P(Eagle3OfModel, ResponsesOfGroupsThatFillTheContextAreThoseWithoutDrafts) {
  EngineConfig config;
  config.context_length = 160;
  TestEngine plain(eagle3_target(GetParam()), config);
  const auto run = [&](TestEngine& bench) {
    std::vector<GenerateUpdate> answers;
    for (int i = 0; i < 6; ++i) {
      const std::vector<TokenId> prompt = some_tokens(i < 3 ? 40 : 97, 3, 120);
      GenerateRequest request =
          i % 3 == 0 ? greedy_request(prompt, 60) : sampled_request(prompt, 60, 7 + i);
      request.sampling.max_new_tokens = config.context_length - std::ssize(prompt);
      request.rid = "of a group " + std::to_string(i);
      bench.submit(request);
    }
    for (int i = 0; i < 6; ++i)
      answers.push_back(bench.responses().wait("of a group " + std::to_string(i)));
    return answers;
  };
  const std::vector<GenerateUpdate> wanted = run(plain);
  EngineConfig drafting = drafting_by(draft_, 5);
  drafting.context_length = config.context_length;
  TestEngine bench(eagle3_target(GetParam()), drafting);
  const std::vector<GenerateUpdate> got = run(bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_GT(bench.engine().load()->drafts.num_drafted, 0);
}

// Attention of keys and values, of latents, with experts, with windows in some layers and in all of them.
INSTANTIATE_TEST_SUITE_P(Models, Eagle3OfModel,
                         ::testing::Values("qwen3", "llama", "deepseek_v3", "glm4_moe",
                                           "gemma3_text", "gpt_oss", "mistral"),
                         golden_models::name_of);

TEST(EngineEagle3, ResponsesOfABfloat16ModelAreThoseWithoutDrafts) {
  TestEngine plain("qwen3", {}, "bfloat16");
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  TestEngine bench("qwen3", drafting_by(random_model("qwen3", "bfloat16"), 5), "bfloat16");
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_GT(bench.engine().load()->drafts.num_drafted, 0);
}

TEST(EngineEagle3, ExpertsThatTokensVisitAreTheTargets) {
  EngineConfig config;
  config.records_experts = true;
  TestEngine plain(eagle3_target("qwen3_moe"), config);
  auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  for (GenerateRequest& request : requests) request.return_routed_experts = true;
  const auto wanted = answers_to(requests, plain);
  ASSERT_FALSE(wanted[0].routed_experts.empty());
  EngineConfig drafting = drafting_by(random_model("qwen3_moe"), 3);
  drafting.records_experts = true;
  TestEngine bench(eagle3_target("qwen3_moe"), drafting);
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
}

TEST(EngineEagle3, ResponsesAreThoseWithoutDraftsWherePagesAreScarce) {
  EngineConfig config;
  config.kv_cache_bytes = 128 << 10;
  TestEngine plain(eagle3_target("qwen3"), config);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  EngineConfig drafting = drafting_by(random_model("qwen3"), 6, /*texts=*/true);
  drafting.kv_cache_bytes = config.kv_cache_bytes;
  TestEngine bench(eagle3_target("qwen3"), drafting);
  const auto got = answers_to(requests, bench);
  int64_t num_retractions = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_equal(got[i], wanted[i]);
    num_retractions += got[i].num_retractions;
  }
  EXPECT_GT(num_retractions, 0);
  EXPECT_GT(bench.engine().load()->drafts.num_kept, 0);
}

TEST(EngineEagle3, AbortedRequestsLeaveNothingBehind) {
  TestEngine plain(eagle3_target("qwen3"), {}),
      bench(eagle3_target("qwen3"), drafting_by(random_model("qwen3"), 4));
  const std::vector<TokenId> prompt = some_tokens(50);
  const GenerateUpdate wanted = plain.generate(sampled_request(prompt, 40, 9));
  for (int round = 0; round < 3; ++round) {
    std::vector<engine::RequestHandle> handles;
    for (int i = 0; i < 4; ++i) {
      GenerateRequest request = sampled_request(prompt, 150, 20 + i);
      request.rid = "ends early " + std::to_string(round) + " " + std::to_string(i);
      handles.push_back(bench.submit(request));
    }
    bench.responses().wait_for_tokens("ends early " + std::to_string(round) + " 0", 3);
    for (const engine::RequestHandle handle : handles)
      static_cast<void>(bench.engine().abort(handle));
    const GenerateUpdate got = bench.generate(sampled_request(prompt, 40, 9));
    EXPECT_EQ(got.output_ids, wanted.output_ids);
    EXPECT_EQ(got.output_log_probs, wanted.output_log_probs);
  }
}

TEST(EngineEagle3, NewWeightsOfTheTargetLeaveTheDraftModelAsItIs) {
  const at::NoGradGuard no_grad;
  const auto draft = random_model("qwen3");
  const Tensor before = draft->weights().flat().clone();
  TestEngine plain(eagle3_target("qwen3"), {}),
      bench(eagle3_target("qwen3"), drafting_by(draft, 3));
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  answers_to(requests, plain);
  answers_to(requests, bench);
  const auto trained = eagle3_target("qwen3");
  trained->weights().flat().mul_(0.7);
  const engine::WeightUpdate update{.version = 1, .source = engine::FromNetwork{trained.get()}};
  ASSERT_TRUE(bench.engine().update_weights(update));
  ASSERT_TRUE(plain.engine().update_weights(update));
  const auto wanted = answers_to(requests, plain), got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_TRUE(draft->weights().flat().equal(before));
  EXPECT_TRUE(bench.network().weights().flat().equal(trained->weights().flat()));
}

TEST(EngineEagle3, PagesHoldItsKeysAndAreFewerForThat) {
  const auto network = eagle3_target("qwen3");
  const EngineConfig drafting = drafting_by(random_model("qwen3"), 3);
  const int64_t plain = engine::cache_page_bytes({}, *network),
                both = engine::cache_page_bytes(drafting, *network);
  EXPECT_EQ(plain, engine::kv_page_bytes(*network, at::kFloat));
  // Keys of one head and its values, whose rows are padded.
  constexpr int64_t kNumbers =
      Eagle3Files::kKvHeads * Eagle3Files::kHeadSize * kernels::kPageTokens;
  EXPECT_GE(both - plain, 2 * kNumbers * 4);
  EXPECT_LE(both - plain, 4 * kNumbers * 4);
  EngineConfig bounded = drafting;
  bounded.kv_cache_bytes = 10 * both + 5;
  EXPECT_EQ(engine::num_pages_of(bounded, *network), 10);
  // Where all layers have windows, the draft model sees what is behind them.
  const auto windows = eagle3_target("mistral");
  EXPECT_GT(engine::page_window({}, *windows).tokens, 0);
  EXPECT_EQ(engine::page_window(drafting, *windows).tokens, 0);
}

TEST(EngineEagle3, NetworksWithStatesDraftNothing) {
  const auto config = model::read_model_config(golden_models::directory("qwen3_next"));
  const auto draft = load_files(model::random_eagle3(config), config);
  TestEngine plain(eagle3_target("qwen3_next"), {}),
      bench(eagle3_target("qwen3_next"), drafting_by(draft, 3));
  const GenerateRequest request = greedy_request(some_tokens(20, 3, 150), 30);
  const GenerateUpdate wanted = plain.generate(request), got = bench.generate(request);
  EXPECT_EQ(got.output_ids, wanted.output_ids);
  EXPECT_EQ(got.output_log_probs, wanted.output_log_probs);
  EXPECT_EQ(bench.engine().load()->drafts.num_drafted, 0);
}

TEST(EngineEagle3, HasToBeThereWhereItIsAskedFor) {
  try {
    TestEngine bench(eagle3_target("qwen3"), drafting_by(nullptr, 3));
    FAIL() << "an engine began without its draft model";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("drafts.model: there is none"));
  }
}

}  // namespace
}  // namespace slime
