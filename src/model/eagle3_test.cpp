/// EAGLE-3 draft models: hidden states, logits and guesses of an independent computation, what directories may look
/// like, and what is refused.

#include "model/eagle3.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "model/eagle3_for_tests.h"
#include "model/golden_models_for_tests.h"
#include "model/token_batch_for_tests.h"
#include "model/tree_attention.h"

namespace slime::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Of float32 against float64 over one layer and three states of the target.
constexpr double kEagle3Tolerance = 1e-4;

Tensor eagle3_pass(const Eagle3& draft, const Network& target, const Tensor& x_TH,
                   const TokenBatch& batch) {
  TreeAttention attention(batch);
  return draft.forward(x_TH, batch, target, attention);
}

double eagle3_difference(const Tensor& got, const Tensor& expected) {
  check(got.sizes() == expected.sizes(), "what is compared has one shape");
  return (got.to(at::kDouble) - expected).abs().max().item<double>();
}

Tensor embedding_of(Network& network) {
  for (const NamedWeight& weight : network.weights().tensors())
    if (weight.name.ends_with("embed_tokens.weight"))
      return Weights::view(network.weights().flat(), weight);
  throw BugError("the model has an embedding");
}

class Eagle3Models : public ::testing::Test {
 protected:
  explicit Eagle3Models(const std::string& name = "qwen3")
      : target_(load_network(golden_models::directory(name), Precision::of("float32"))),
        folder_("slime-eagle3") {
    for (int64_t i = 0; i < 12; ++i) ids_.push_back((3 + 29 * i) % 200);
    behind_.assign(ids_.begin() + 1, ids_.end());
    behind_.push_back(151);
  }
  const ModelConfig& config() const { return target_->config(); }
  std::shared_ptr<const Eagle3> loaded(const Eagle3Files& files) {
    files.write(folder_.path());
    return load_eagle3(folder_.path(), config(), Precision::of("float32"));
  }
  std::string problems_of(const Eagle3Files& files) {
    files.write(folder_.path());
    std::string all;
    for (const std::string& problem : eagle3_problems(folder_.path(), config()))
      all += problem + "\n";
    // Loading says the same.
    std::string thrown;
    try {
      load_eagle3(folder_.path(), config(), Precision::of("float32"));
    } catch (const ConfigError& error) {
      thrown = std::string(error.what()) + "\n";
    }
    EXPECT_EQ(thrown, all);
    return all;
  }
  /// Of the target, as the draft model reads them.
  Tensor states(const Eagle3& draft) {
    TokenBatch batch = sequence_of(ids_);
    HiddenCapture captured{.layers = draft.form().captured_layers};
    batch.captured = &captured;
    TreeAttention attention(batch);
    target_->forward(batch, attention);
    return captured.hidden_TC;
  }
  void expect_reference(const Eagle3Files& files, const Tensor& table_VH) {
    const auto draft = loaded(files);
    const Eagle3Reference reference(files);
    const Tensor hidden_TC = states(*draft);
    const Tensor embedding_TH =
        table_VH.to(at::kDouble).index_select(0, at::tensor(behind_, at::kLong));
    const Tensor x_TH = draft->fused(hidden_TC);
    const Tensor expected_x_TH = reference.fused(hidden_TC.to(at::kDouble));
    EXPECT_LT(eagle3_difference(x_TH, expected_x_TH), kEagle3Tolerance);
    const Tensor kept_TH = x_TH.clone();
    const Tensor y_TH = eagle3_pass(*draft, *target_, x_TH, sequence_of(behind_));
    EXPECT_TRUE(x_TH.equal(kept_TH)) << "the caller's states are left as they are";
    const Tensor expected_y_TH = reference.pass(expected_x_TH, embedding_TH);
    EXPECT_LT(eagle3_difference(y_TH, expected_y_TH), kEagle3Tolerance);
    EXPECT_LT(eagle3_difference(draft->logits(y_TH, *target_), reference.logits(expected_y_TH)),
              kEagle3Tolerance);
    // Wanted rows are those rows, and there may be none.
    TokenBatch some = sequence_of(behind_);
    some.wanted_R = at::tensor(std::vector<int64_t>{11, 2}, at::kLong);
    EXPECT_TRUE(
        eagle3_pass(*draft, *target_, x_TH, some).equal(y_TH.index_select(0, some.wanted_R)));
    some.wanted_R = at::empty({0}, at::kLong);
    EXPECT_EQ(eagle3_pass(*draft, *target_, x_TH, some).size(0), 0);
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<Network> target_;
  TemporaryFolder folder_;
  std::vector<int64_t> ids_, behind_;  // a sequence, and of each token the one behind it
};

TEST_F(Eagle3Models, HaveTheReferencesHiddenStatesAndLogits) {
  expect_reference(random_eagle3(config()), embedding_of(*target_));
}

TEST_F(Eagle3Models, AddTheNormedStateWhereTheFilesSaySo) {
  Eagle3Files files = random_eagle3(config());
  files.config["norm_before_residual"] = true;
  expect_reference(files, embedding_of(*target_));
}

TEST_F(Eagle3Models, MayBeNarrowerThanTheirTargetWithAnEmbeddingOfTheirOwn) {
  const Eagle3Files files = random_eagle3(config(), 32);
  expect_reference(files, files.tensors.at("embed_tokens.weight"));
}

TEST_F(Eagle3Models, TakeTheirOwnEmbeddingWhereTheFilesHaveOne) {
  Eagle3Files files = random_eagle3(config());
  const Tensor own = random_tensor("own", {config().vocab_size, config().hidden_size}, 0.3);
  files.tensors["embed_tokens.weight"] = own;
  expect_reference(files, own);
}

TEST_F(Eagle3Models, TakeTheTargetsOutputLayerWhereTheFilesHaveNone) {
  Eagle3Files files = random_eagle3(config());
  files.tensors.erase("lm_head.weight");
  files.tensors.erase("d2t");
  files.config.erase("draft_vocab_size");
  const auto draft = loaded(files);
  const Tensor y_TH = random_tensor("y", {3, config().hidden_size}, 1);
  const Tensor normed =
      y_TH / (y_TH.pow(2).mean(-1, true) + 1e-5).sqrt() * files.tensors.at("norm.weight");
  EXPECT_TRUE(at::allclose(draft->logits(y_TH, *target_), target_->logits(normed), 1e-4, 1e-4));
  EXPECT_EQ(std::ssize(draft->token_ids()), config().vocab_size);
  EXPECT_EQ(draft->token_ids()[7], 7);
}

TEST_F(Eagle3Models, ContinueGreedilyAsTheReference) {
  const Eagle3Files files = random_eagle3(config());
  const auto draft = loaded(files);
  const Tensor hidden_TC = states(*draft);
  const auto expected = Eagle3Reference(files).chain(hidden_TC, behind_, embedding_of(*target_), 5);
  std::vector<int64_t> tokens = behind_;
  Tensor x_TH = draft->fused(hidden_TC);
  for (const Eagle3Reference::Guess& guess : expected) {
    TokenBatch batch = sequence_of(tokens);
    batch.wanted_R = at::tensor({batch.num_tokens() - 1}, at::kLong);
    const Tensor last_1H = eagle3_pass(*draft, *target_, x_TH, batch);
    const auto best = draft->logits(last_1H, *target_)[0].argmax().item<int64_t>();
    EXPECT_EQ(draft->token_ids()[static_cast<size_t>(best)], guess.token);
    EXPECT_EQ(guess.token, 2 * best) << "of every second id";
    tokens.push_back(guess.token);
    x_TH = at::cat({x_TH, last_1H});
  }
}

TEST_F(Eagle3Models, AreTheSameByAnyOfTheirNames) {
  const Eagle3Files files = random_eagle3(config());
  const auto draft = loaded(files);
  for (const auto& [from, to] :
       {std::pair{"midlayer.", "model.layers.0."}, std::pair{"midlayer.", "layers.0."},
        std::pair{"midlayer.", "model.midlayer."}, std::pair{"norm.", "model.norm."}}) {
    Eagle3Files other = files;
    other.rename(from, to);
    if (std::string(to) == "model.norm.") other.rename("fc.", "model.fc.");
    EXPECT_TRUE(loaded(other)->weights().flat().equal(draft->weights().flat())) << to;
  }
  for (const char* architecture : {"Eagle3LlamaForCausalLM", "LlamaForCausalLM"}) {
    Eagle3Files other = files;
    other.config["architectures"] = json::array{architecture};
    EXPECT_EQ(problems_of(other), "") << architecture;
  }
}

TEST_F(Eagle3Models, ReadTheLayersThatSglangAndVllmMean) {
  Eagle3Files files = random_eagle3(config());
  ModelConfig deep = config();
  deep.num_layers = 36;
  files.write(folder_.path());
  const auto layers = [&] {
    files.write(folder_.path());
    return outline_eagle3(folder_.path(), deep)->form().captured_layers;
  };
  files.config["eagle_config"] =
      json::object{{"eagle_aux_hidden_state_layer_ids", json::array{32, 1, 17}}};
  EXPECT_THAT(layers(), ElementsAre(2, 18, 33)) << "outputs of layers";
  files.config["eagle_config"] = json::object{{"eagle_aux_hidden_state_layer_ids", json::array{}}};
  EXPECT_THAT(layers(), ElementsAre(2, 18, 33)) << "the usual ones";
  files.config.erase("eagle_config");
  EXPECT_THAT(layers(), ElementsAre(2, 18, 33));
  files.config["eagle_aux_hidden_state_layer_ids"] = json::array{1, 17, 32};
  EXPECT_THAT(layers(), ElementsAre(1, 17, 32)) << "inputs of layers";
}

TEST_F(Eagle3Models, ThatDoNotFitAreRefusedWithAllThatIsWrong) {
  EXPECT_EQ(problems_of(random_eagle3(config())), "");
  Eagle3Files files = random_eagle3(config());
  files.config["vocab_size"] = config().vocab_size + 2;
  files.config["target_hidden_size"] = config().hidden_size + 8;
  files.config["num_hidden_layers"] = 2;
  files.config["eagle_config"] = json::object{
      {"use_aux_hidden_state", false}, {"eagle_aux_hidden_state_layer_ids", json::array{0, 0, 9}}};
  files.tensors.erase("midlayer.self_attn.o_proj.weight");
  files.tensors.erase("d2t");
  files.tensors["fc.bias"] = at::zeros({config().hidden_size});
  EXPECT_THAT(
      problems_of(files),
      AllOf(HasSubstr("vocab_size is"), HasSubstr("the draft model is of another model"),
            HasSubstr("target_hidden_size is"), HasSubstr("num_hidden_layers must be 1"),
            HasSubstr("use_aux_hidden_state must be true"),
            HasSubstr("eagle_aux_hidden_state_layer_ids must be 3 different layers"),
            HasSubstr("tensor midlayer.self_attn.o_proj.weight is missing"),
            HasSubstr("tensor d2t is missing"), HasSubstr("tensor fc.bias belongs to no part"),
            HasSubstr("tensor fc.weight is [")));

  files = random_eagle3(config(), 32);
  files.tensors.erase("embed_tokens.weight");
  EXPECT_THAT(problems_of(files), HasSubstr("without the tensor embed_tokens.weight it must be"));
  // The target's output layer takes states of its own size alone.
  files = random_eagle3(config(), 32);
  files.tensors.erase("lm_head.weight");
  files.config["draft_vocab_size"] = config().vocab_size;
  files.tensors.at("d2t") = at::zeros({config().vocab_size}, at::kLong);
  EXPECT_THAT(problems_of(files), HasSubstr("without the tensor lm_head.weight it must be"));
  files = random_eagle3(config());
  files.config["eagle_config"] = json::object{
      {"eagle_aux_hidden_state_layer_ids", json::array{0, 1, std::numeric_limits<int64_t>::max()}}};
  EXPECT_THAT(problems_of(files), HasSubstr("must be 3 different layers"));
  files = random_eagle3(config());
  files.config.erase("eagle_config");
  EXPECT_THAT(problems_of(files), HasSubstr("three layers of a model of 3 have to be named"));
  files = random_eagle3(config());
  files.tensors.erase("lm_head.weight");
  EXPECT_THAT(problems_of(files), HasSubstr("tensor lm_head.weight is missing"));
}

TEST_F(Eagle3Models, WhoseFilesAreLinksThatLeadNowhereAreRefused) {
  random_eagle3(config()).write(folder_.path());
  const auto path = folder_.path() / "config.json";
  std::filesystem::remove(path);
  std::filesystem::create_symlink("config.json", path);
  EXPECT_THAT(eagle3_problems(folder_.path(), config()),
              ElementsAre(HasSubstr("has no config.json")));
}

TEST_F(Eagle3Models, OfOtherKindsAreRefusedByTheirName) {
  for (const auto& [name, says] :
       {std::pair{"LlamaForCausalLMEagle", "an EAGLE draft model of version 1 or 2"},
        std::pair{"EagleLlamaForCausalLM", "an EAGLE draft model of version 1 or 2"},
        std::pair{"Eagle3DeepseekV2ForCausalLM", "no EAGLE-3 draft model that is known"},
        std::pair{"DeepseekV3ForCausalLMNextN", "no EAGLE-3 draft model that is known"}}) {
    Eagle3Files files = random_eagle3(config());
    files.config["architectures"] = json::array{name};
    EXPECT_THAT(problems_of(files),
                AllOf(HasSubstr(std::string("architectures \"") + name + "\" is " + says),
                      HasSubstr("EAGLE-3 draft models are computed")));
  }
  Eagle3Files plain = random_eagle3(config());
  plain.config["architectures"] = json::array{"LlamaForCausalLM"};
  plain.config.erase("draft_vocab_size");
  EXPECT_THAT(problems_of(plain), HasSubstr("no EAGLE-3 draft model that is known"));
  Eagle3Files speculators = random_eagle3(config());
  speculators.config["architectures"] = json::array{"Eagle3Speculator"};
  speculators.config["transformer_layer_config"] = json::object{};
  EXPECT_THAT(problems_of(speculators), HasSubstr("the speculators library"));
  EXPECT_THAT(eagle3_problems(folder_.path() / "nowhere", config()),
              ElementsAre(HasSubstr("is no directory")));
  Eagle3Files nameless = random_eagle3(config());
  nameless.config["architectures"] = "LlamaForCausalLMEagle3";
  EXPECT_THAT(problems_of(nameless), HasSubstr("config.json names no architecture"));
}

TEST_F(Eagle3Models, WhoseIdsAreNotTheTargetsAreRefusedWhereTheyAreRead) {
  Eagle3Files files = random_eagle3(config());
  files.tensors.at("d2t")[3].fill_(config().vocab_size);
  EXPECT_THAT(problems_of(files), HasSubstr("for id 3 of the draft vocabulary"));
  try {
    load_eagle3(folder_.path(), config(), Precision::of("float32"));
    FAIL() << "an id beyond the vocabulary was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("for id 3 of the draft vocabulary"));
  }
}

TEST_F(Eagle3Models, AreRefusedBehindTheFlagThatNamedThem) {
  Eagle3Files files = random_eagle3(config());
  files.config["vocab_size"] = 7;
  files.tensors.erase("fc.weight");
  files.tensors.erase("norm.weight");
  files.write(folder_.path());
  std::string all;
  for (const std::string& problem : eagle3_problems(folder_.path(), config(), "--draft"))
    all += problem + "\n";
  std::istringstream lines(all);
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines)
    EXPECT_THAT(line, ::testing::StartsWith("--draft: " + folder_.path().string()));
  EXPECT_GE(num_lines, 3);
  for (const auto& make :
       {std::function([&] { outline_eagle3(folder_.path(), config(), "--draft"); }),
        std::function(
            [&] { load_eagle3(folder_.path(), config(), Precision::of("float32"), "--draft"); })}) {
    try {
      make();
      FAIL() << "it was taken";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what() + std::string("\n"), all);
    }
  }
}

class CapturedStates : public ::testing::TestWithParam<const char*> {};

/// The states are those between the blocks, and nobody's result depends on who looks at them.
TEST_P(CapturedStates, AreTheStreamAndLeaveTheModelsResultAsItIs) {
  const at::NoGradGuard no_grad;
  const auto network = load_network(golden_models::directory(GetParam()), Precision::of("float32"));
  const int64_t layers = network->config().num_layers, hidden = network->config().hidden_size;
  TokenBatch batch = sequence_of({5, 9, 2, 77, 31, 9, 5});
  const auto run = [&](HiddenCapture* captured) {
    batch.captured = captured;
    TreeAttention attention(batch);
    return network->forward(batch, attention);
  };
  const Tensor plain_TH = run(nullptr);
  HiddenCapture captured;
  for (int64_t layer = 0; layer <= layers; ++layer) captured.layers.push_back(layer);
  EXPECT_TRUE(run(&captured).equal(plain_TH));
  ASSERT_EQ(captured.hidden_TC.sizes(), at::IntArrayRef({7, (layers + 1) * hidden}));
  const auto state = [&](const HiddenCapture& from, int64_t which) {
    return from.hidden_TC.narrow(1, which * hidden, hidden);
  };
  // The embedding enters, scaled in some families.
  const Tensor embedding_TH = network->embedded(batch), first_TH = state(captured, 0);
  const double scale = first_TH.norm().item<double>() / embedding_TH.norm().item<double>();
  EXPECT_TRUE(at::allclose(first_TH, embedding_TH * scale, 1e-4, 1e-6));
  // What leaves the last block is what the last norm reads: equal but for a factor of each token and
  // one of each column.
  const Tensor last_TH = state(captured, layers).to(at::kDouble), out_TH = plain_TH.to(at::kDouble);
  const Tensor unit_TH =
      last_TH / (last_TH.pow(2).mean(-1, true) + network->config().norm_eps).sqrt();
  const Tensor weight_H = (out_TH * unit_TH).sum(0) / unit_TH.pow(2).sum(0);
  EXPECT_LT((unit_TH * weight_H - out_TH).abs().max().item<double>(), 1e-4);
  // Some of them are the same ones.
  HiddenCapture two{.layers = {1, layers}};
  run(&two);
  EXPECT_TRUE(state(two, 0).equal(state(captured, 1)));
  EXPECT_TRUE(state(two, 1).equal(state(captured, layers)));
  EXPECT_FALSE(state(captured, 0).equal(state(captured, 1)));
}

INSTANTIATE_TEST_SUITE_P(Models, CapturedStates, ::testing::ValuesIn(golden_models::kinds()),
                         golden_models::name_of);

TEST(CapturedStatesOfBatches, AreOfAllRows) {
  const at::NoGradGuard no_grad;
  const auto network = load_network(golden_models::directory("qwen3"), Precision::of("float32"));
  TokenBatch batch = sequence_of({5, 9, 2});
  HiddenCapture captured{.layers = {0}};
  batch.captured = &captured;
  batch.wanted_R = at::tensor(std::vector<int64_t>{2}, at::kLong);
  TreeAttention attention(batch);
  EXPECT_THROW(network->forward(batch, attention), BugError);
}

}  // namespace
}  // namespace slime::model
