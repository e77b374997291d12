/// An engine that drafts with the model's own draft layer: its guesses are the reference's, its responses those of an
/// engine without drafts, to the bit.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "core/json.h"
#include "draft_cases.h"
#include "engine/model_runner.h"
#include "model/save.h"

namespace slime {
namespace {

using engine::Draft;
using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::answers_to;
using testing::expect_equal;
using testing::greedy_request;
using testing::requests_of_all_forms;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

/// Of float32 over three layers (src/model/draft_layers_test.cpp).
constexpr double kLayerTolerance = 1e-4;

std::filesystem::path layer_fixture(const std::string& name) {
  return std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/drafts" / name;
}

std::unique_ptr<model::Network> with_layer(const std::string& name) {
  return model::load_network(layer_fixture(name), model::Precision::of("float32"),
                             comm::Mesh::single(), model::DraftLayers::kComputed);
}

std::unique_ptr<model::Network> without_layer(const std::string& name) {
  return model::load_network(layer_fixture(name), model::Precision::of("float32"));
}

EngineConfig drafting_by_layer(int64_t most, bool texts = false, bool always = true) {
  EngineConfig config;
  config.drafts = {.most = most, .always = always, .texts = texts, .layer = true};
  return config;
}

/// Steps of one request, by hand.
class LayerSteps {
 public:
  struct Outcome {
    std::vector<TokenId> drawn;  // behind the last known token, and behind each draft
    std::vector<Draft> foretold;
  };

  LayerSteps(model::Network& network, const std::vector<TokenId>& prompt)
      : runner_(network, {.kv_dtype = at::kFloat, .num_pages = 8}) {
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
  /// Tokens that turned out right; keys of all but the last are there.
  void keep(std::span<const TokenId> tokens) {
    request_.tokens.insert(request_.tokens.end(), tokens.begin(), tokens.end());
    request_.num_computed += std::ssize(tokens) - 1;
  }

 private:
  engine::ModelRunner runner_;
  engine::Request request_;
};

void expect_same_guesses(const std::vector<Draft>& got, const std::vector<Draft>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, expected[i].id) << i;
    EXPECT_NEAR(got[i].chance, expected[i].chance, kLayerTolerance) << i;
  }
}

class LayerOfModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    network_ = with_layer(GetParam());
    golden_ = read_json_file(layer_fixture(GetParam()) / "golden.json").as_object();
    for (const json::value& id : golden_.at("ids").as_array())
      prompt_.push_back(static_cast<TokenId>(id.to_number<int64_t>()));
  }
  /// What steps from the very beginning say of the guesses behind `tokens`.
  LayerSteps::Outcome anew(const std::vector<TokenId>& tokens, int64_t num_foretold) {
    return LayerSteps(*network_, tokens).step(num_foretold);
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<model::Network> network_;
  json::object golden_;
  std::vector<TokenId> prompt_;
};

TEST_P(LayerOfModel, FirstGuessesAreTheReferencesChain) {
  const json::array& chain = golden_.at("chain_normed").at("steps").as_array();
  const LayerSteps::Outcome out = anew(prompt_, std::ssize(chain));
  ASSERT_EQ(out.drawn.size(), 1U);
  EXPECT_EQ(out.drawn[0], golden_.at("next_token").to_number<int64_t>());
  ASSERT_EQ(out.foretold.size(), chain.size());
  double chance = 1;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(out.foretold[i].id, chain[i].at("token").to_number<int64_t>()) << i;
    const auto logits = json::value_to<std::vector<double>>(chain[i].at("logits"));
    double sum = 0;
    for (const double logit : logits)
      sum += std::exp(logit - logits[static_cast<std::size_t>(out.foretold[i].id)]);
    chance /= sum;
    EXPECT_NEAR(out.foretold[i].chance, chance, kLayerTolerance * chance) << i;
  }
}

TEST_P(LayerOfModel, GuessesBehindAPromptInChunksAreThose) {
  const LayerSteps::Outcome whole = anew(prompt_, 3);
  for (const int64_t first : {1, 5, 11}) {
    LayerSteps steps(*network_, prompt_);
    EXPECT_TRUE(steps.step(first, {}, 0).drawn.empty());
    const LayerSteps::Outcome rest = steps.step(3);
    EXPECT_EQ(rest.drawn, whole.drawn);
    expect_same_guesses(rest.foretold, whole.foretold);
  }
}

TEST_P(LayerOfModel, GuessesBehindVerifiedDraftsAreThoseOfABeginning) {
  // What decoding one by one draws.
  std::vector<TokenId> drawn;
  LayerSteps plain(*network_, prompt_);
  for (int i = 0; i < 5; ++i) {
    drawn.push_back(plain.step(0).drawn.at(0));
    plain.request().tokens.push_back(drawn.back());
  }
  const auto other = [](TokenId id) { return id == 7 ? 8 : 7; };
  for (int num_right = 0; num_right <= 3; ++num_right) {
    SCOPED_TRACE(num_right);
    LayerSteps steps(*network_, prompt_);
    steps.step(4);  // its last three passes write behind the last token
    steps.request().tokens.push_back(drawn[0]);
    std::vector<TokenId> drafts(drawn.begin() + 1, drawn.begin() + 4);
    for (int i = num_right; i < 3; ++i) drafts[i] = other(drafts[i]);
    const LayerSteps::Outcome verified = steps.step(1, drafts, 3);
    ASSERT_EQ(verified.drawn.size(), 4U);
    std::vector<TokenId> tokens = prompt_;
    tokens.insert(tokens.end(), drawn.begin(), drawn.begin() + 1 + num_right);
    const LayerSteps::Outcome expected = anew(tokens, 3);
    EXPECT_EQ(verified.drawn[num_right], expected.drawn[0]);
    expect_same_guesses(verified.foretold, expected.foretold);

    // Nothing is left of keys of wrong drafts and of guesses.
    steps.keep(std::span(drawn).subspan(1, num_right + 1));
    tokens.push_back(drawn[num_right + 1]);
    const LayerSteps::Outcome next = steps.step(2), next_expected = anew(tokens, 2);
    EXPECT_EQ(next.drawn, next_expected.drawn);
    expect_same_guesses(next.foretold, next_expected.foretold);
  }
}

TEST_P(LayerOfModel, ResponsesAreThoseWithoutDrafts) {
  TestEngine plain(without_layer(GetParam()), {});
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  for (const int64_t most : {1, 3}) {
    for (const bool texts : {false, true}) {
      TestEngine bench(with_layer(GetParam()), drafting_by_layer(most, texts));
      const std::vector<GenerateUpdate> got = answers_to(requests, bench);
      for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
      const DraftCounts counts = bench.engine().load()->drafts;
      EXPECT_GT(counts.num_drafted, counts.num_steps / 2);
      // The second round repeats the first.
      if (texts) {
        EXPECT_GT(counts.num_kept, counts.num_steps / 4) << most;
      }
    }
  }
}

TEST_P(LayerOfModel, ResponsesAreThoseWithoutDraftsInShortChunksWhereDraftsAreChosen) {
  EngineConfig config;
  config.max_prefill_tokens = 7;
  TestEngine plain(without_layer(GetParam()), config);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  for (const bool always : {false, true}) {
    config.drafts = drafting_by_layer(4, /*texts=*/true, always).drafts;
    TestEngine bench(with_layer(GetParam()), config);
    const std::vector<GenerateUpdate> got = answers_to(requests, bench);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
    if (always) {
      EXPECT_GT(bench.engine().load()->drafts.num_drafted, 0);
    }
  }
}

/// One prompt for many, long enough for whole pages; the last of them end where the context does.
TEST_P(LayerOfModel, ResponsesOfGroupsThatFillTheContextAreThoseWithoutDrafts) {
  TestEngine plain(without_layer(GetParam()), {});
  const auto context = plain.network().config().max_positions;
  const auto run = [&](TestEngine& bench) {
    std::vector<GenerateUpdate> answers;
    for (int i = 0; i < 6; ++i) {
      const std::vector<TokenId> prompt = some_tokens(i < 3 ? 40 : 97, 3, 150);
      GenerateRequest request =
          i % 3 == 0 ? greedy_request(prompt, context) : sampled_request(prompt, context, 7 + i);
      request.sampling.max_new_tokens = context - std::ssize(prompt);
      request.rid = "of a group " + std::to_string(i);
      bench.submit(request);
    }
    for (int i = 0; i < 6; ++i)
      answers.push_back(bench.responses().wait("of a group " + std::to_string(i)));
    return answers;
  };
  const std::vector<GenerateUpdate> wanted = run(plain);
  EXPECT_EQ(std::ssize(wanted.back().output_ids), context - 97);
  TestEngine bench(with_layer(GetParam()), drafting_by_layer(5));
  const std::vector<GenerateUpdate> got = run(bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_GT(bench.engine().load()->drafts.num_drafted, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, LayerOfModel, ::testing::Values("deepseek_v3", "glm4_moe", "mimo"),
                         golden_models::name_of);

TEST(EngineDraftLayer, ExpertsThatTokensVisitAreThoseOfTheOtherLayers) {
  EngineConfig config;
  config.records_experts = true;
  TestEngine plain(without_layer("glm4_moe"), config);
  auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  for (GenerateRequest& request : requests) request.return_routed_experts = true;
  const auto wanted = answers_to(requests, plain);
  ASSERT_FALSE(wanted[0].routed_experts.empty());
  config.drafts = drafting_by_layer(3).drafts;
  TestEngine bench(with_layer("glm4_moe"), config);
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
}

TEST(EngineDraftLayer, ResponsesAreThoseWithoutDraftsWherePagesAreScarce) {
  EngineConfig config;
  config.kv_cache_bytes = 96 << 10;  // eight pages of three layers
  TestEngine plain(without_layer("mimo"), config);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  config.drafts = drafting_by_layer(6, /*texts=*/true).drafts;
  TestEngine bench(with_layer("mimo"), config);
  const auto got = answers_to(requests, bench);
  int64_t num_retractions = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_equal(got[i], wanted[i]);
    num_retractions += got[i].num_retractions;
  }
  EXPECT_GT(num_retractions, 0);
  EXPECT_GT(bench.engine().load()->drafts.num_kept, 0);
}

TEST(EngineDraftLayer, NetworksWithStatesDraftNothing) {
  TestEngine plain(without_layer("qwen3_next"), {}),
      bench(with_layer("qwen3_next"), drafting_by_layer(3));
  const GenerateRequest request = greedy_request(some_tokens(20, 3, 150), 30);
  const GenerateUpdate wanted = plain.generate(request), got = bench.generate(request);
  EXPECT_EQ(got.output_ids, wanted.output_ids);
  EXPECT_EQ(got.output_log_probs, wanted.output_log_probs);
  EXPECT_EQ(bench.engine().load()->drafts.num_drafted, 0);
}

TEST(EngineDraftLayer, HasToBeThereWhereItIsAskedFor) {
  try {
    TestEngine bench(without_layer("mimo"), drafting_by_layer(3));
    FAIL() << "an engine began without its draft layer";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("was loaded without its draft layer"));
  }
}

/// New weights behind the first answers.
class LayerUpdates : public ::testing::Test {
 protected:
  LayerUpdates()
      : plain_(without_layer("mimo"), {}), bench_(with_layer("mimo"), drafting_by_layer(3, true)) {
    requests_ = requests_of_all_forms(plain_.network().config().vocab_size);
    expect_equal_answers("before the update");
  }
  void expect_equal_answers(const std::string& when) {
    SCOPED_TRACE(when);
    const auto wanted = answers_to(requests_, plain_), got = answers_to(requests_, bench_);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
    EXPECT_NE(wanted[1].output_ids, before_) << "the weights have changed";
    before_ = wanted[1].output_ids;
  }
  Tensor weights_before_layer() {
    return bench_.network().weights().flat().narrow(0, 0,
                                                    plain_.network().weights().num_elements());
  }
  Tensor weights_of_layer() {
    const int64_t begin = plain_.network().weights().num_elements();
    const Tensor& flat_N = bench_.network().weights().flat();
    return flat_N.narrow(0, begin, flat_N.size(0) - begin);
  }

  const at::NoGradGuard no_grad_;
  TestEngine plain_, bench_;
  std::vector<GenerateRequest> requests_;
  std::vector<TokenId> before_;
};

TEST_F(LayerUpdates, OfADirectoryBringTheLayersNewWeights) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("slime_layer_update_" + std::to_string(::getpid()));
  model::ModelConfig config = bench_.network().config();
  config.initializer_range = 0.2;
  const auto fresh = model::make_network(config, model::Precision::of("float32"), 5);
  std::filesystem::create_directories(directory);
  model::save_network(*fresh, directory);
  const engine::WeightUpdate update{.version = 1, .source = engine::FromDirectory{directory}};
  const auto drafted = bench_.engine().update_weights(update);
  EXPECT_TRUE(drafted) << (drafted ? "" : drafted.error().message);
  const auto plainly = plain_.engine().update_weights(update);
  EXPECT_TRUE(plainly) << (plainly ? "" : plainly.error().message);
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(bench_.network().weights().flat().equal(fresh->weights().flat()));
  expect_equal_answers("behind the update");
}

TEST_F(LayerUpdates, OfATrainersNetworkLeaveTheLayerAsItIs) {
  const auto trained = without_layer("mimo");
  trained->weights().flat().mul_(0.7);
  const Tensor layer_before = weights_of_layer().clone();
  const engine::WeightUpdate update{.version = 1, .source = engine::FromNetwork{trained.get()}};
  ASSERT_TRUE(bench_.engine().update_weights(update));
  ASSERT_TRUE(plain_.engine().update_weights(update));
  EXPECT_TRUE(weights_before_layer().equal(trained->weights().flat()));
  EXPECT_TRUE(weights_of_layer().equal(layer_before));
  expect_equal_answers("behind the update");
}

TEST_F(LayerUpdates, InPlaceAreThoseOfATrainedNetworkOverTheSameNumbers) {
  model::Precision shared = model::Precision::of("float32");
  shared.shared = &bench_.network().weights();
  ASSERT_TRUE(bench_.engine().pause(engine::PauseMode::kInPlace));
  const auto trained = model::load_network(layer_fixture("mimo"), shared);
  EXPECT_EQ(trained->num_draft_layers(), 0);
  const Tensor layer_before = weights_of_layer().clone();
  trained->weights().flat().mul_(0.7);
  EXPECT_TRUE(weights_before_layer().equal(trained->weights().flat()));
  EXPECT_TRUE(weights_of_layer().equal(layer_before));
  ASSERT_TRUE(bench_.engine().update_weights({.version = 1}));
  ASSERT_TRUE(bench_.engine().resume());
  ASSERT_TRUE(
      plain_.engine().update_weights({.version = 1, .source = engine::FromNetwork{trained.get()}}));
  expect_equal_answers("behind the update");
}

}  // namespace
}  // namespace slime
