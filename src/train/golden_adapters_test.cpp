/// Adapters of PEFT beside the golden models: losses, gradients and an AdamW step (tests/fixtures/lora).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "kernels/gpu/for_tests.h"
#include "model/adapter_files.h"
#include "model/golden_models_for_tests.h"
#include "model/merge_adapters.h"
#include "model/placement.h"
#include "model/tree_attention.h"
#include "train/optimizer.h"

namespace slime::train {
namespace {

namespace fs = std::filesystem;

fs::path adapters_folder() { return fs::path(SLIME_SOURCE_DIR) / "tests/fixtures/lora"; }

/// The four sequences of a golden model, packed.
struct Sequences {
  model::TokenBatch batch;
  Tensor scored_R, target_R;  // rows that predict, and what

  explicit Sequences(const std::string& model, at::Device device = at::kCPU) {
    const json::value golden =
        read_json_file(golden_models::directory(model) / "golden.json").at("sequences");
    std::vector<int64_t> ids, positions, scored, targets;
    for (const json::value& sequence : golden.as_array()) {
      const auto begin = static_cast<int64_t>(ids.size());
      for (const json::value& id : sequence.as_array()) {
        if (positions.size() > static_cast<std::size_t>(begin)) {
          scored.push_back(static_cast<int64_t>(ids.size()) - 1);
          targets.push_back(id.as_int64());
        }
        positions.push_back(static_cast<int64_t>(ids.size()) - begin);
        ids.push_back(id.as_int64());
      }
      batch.segments.push_back({begin, static_cast<int64_t>(ids.size()), -1});
    }
    const auto on_device = [&](const std::vector<int64_t>& numbers) {
      return at::tensor(numbers, at::kLong).to(device);
    };
    batch.ids_T = on_device(ids);
    batch.rotary_row_T = on_device(positions);
    scored_R = on_device(scored);
    target_R = on_device(targets);
  }

  Tensor log_probs(model::Network& network) const {
    model::TreeAttention attention(batch);
    const Tensor hidden_TH = network.forward(batch, attention);
    return network.log_probs(hidden_TH.index_select(0, scored_R), target_R, {}).logprob_R;
  }
  double loss(model::Network& network) const {
    const at::NoGradGuard no_grad;
    return -log_probs(network).mean().item<double>();
  }
  /// The attention outlives the backward.
  void add_gradients(model::Network& network) const {
    model::TreeAttention attention(batch);
    const Tensor hidden_TH = network.forward(batch, attention);
    (-network.log_probs(hidden_TH.index_select(0, scored_R), target_R, {}).logprob_R.mean())
        .backward();
  }
};

/// Under the names of PEFT's files.
std::string peft_name(std::string name) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  };
  replace(".experts.gate_up_proj.", ".experts.base_layer.");
  replace(".experts.down_proj.", ".experts.");
  return name;
}

struct Case {
  std::string model, name;
  json::object golden;
  fs::path directory() const { return adapters_folder() / model / name; }
};

std::vector<std::string> cases() {
  std::vector<std::string> all;
  for (const auto& model : fs::directory_iterator(adapters_folder())) {
    if (!model.is_directory()) continue;
    for (const auto& each : fs::directory_iterator(model.path()))
      if (fs::exists(each.path() / "golden.json"))
        all.push_back(model.path().filename().string() + "/" + each.path().filename().string());
  }
  std::ranges::sort(all);
  return all;
}

Case read_case(const std::string& path) {
  const std::size_t slash = path.find('/');
  Case out{path.substr(0, slash), path.substr(slash + 1), {}};
  out.golden = read_json_file(out.directory() / "golden.json").as_object();
  return out;
}

double number(const json::value& value) { return value.to_number<double>(); }

class GoldenAdapters : public ::testing::TestWithParam<std::string> {};

void expect_those_of_peft(const Case& golden, const model::Precision& precision, double loss_bound,
                          double norm_bound) {
  const Sequences sequences(golden.model, precision.device);
  const auto network = model::load_network(golden_models::directory(golden.model), precision);
  const double base_loss = number(golden.golden.at("base_loss"));
  EXPECT_NEAR(sequences.loss(*network), base_loss, loss_bound);
  model::load_adapters(*network, golden.directory());
  EXPECT_NEAR(sequences.loss(*network), number(golden.golden.at("loss")), loss_bound);
  {
    const model::AdaptersOff off(network->adapters());
    EXPECT_NEAR(sequences.loss(*network), base_loss, loss_bound);
  }

  model::Weights& trained = network->trained();
  EXPECT_EQ(trained.num_parameters(), golden.golden.at("trainable_parameters").as_int64());
  const json::object& how = golden.golden.at("optimizer").as_object();
  Optimizer optimizer(trained, {.beta1 = number(how.at("betas").at(0)),
                                .beta2 = number(how.at("betas").at(1)),
                                .eps = number(how.at("eps"))});
  sequences.add_gradients(*network);
  EXPECT_FALSE(network->weights().grad().defined());  // the base has no gradients
  const json::object& norms = golden.golden.at("grad_norms").as_object();
  EXPECT_EQ(norms.size(), trained.tensors().size());
  for (const model::NamedWeight& weight : trained.tensors()) {
    const double expected = number(norms.at(peft_name(weight.name)));
    EXPECT_NEAR(model::Weights::view(trained.grad(), weight).norm().item<double>(), expected,
                1e-5 + norm_bound * expected)
        << weight.name;
  }

  const Tensor before = network->weights().flat().clone();
  optimizer.step(number(how.at("learning_rate")), number(how.at("weight_decay")), 1);
  // torch decays vectors too.
  if (golden.name != "saved_norm") {
    EXPECT_NEAR(sequences.loss(*network), number(golden.golden.at("loss_after_step")), 2e-3);
  }
  EXPECT_TRUE(network->weights().flat().equal(before));
}

TEST_P(GoldenAdapters, GiveTheLossesAndGradientsOfPeft) {
  expect_those_of_peft(read_case(GetParam()), model::Precision::of("float32"), 2e-5, 2e-4);
}

TEST_P(GoldenAdapters, GiveThemOnAGpu) {
  SLIME_NEEDS_GPU();
  expect_those_of_peft(read_case(GetParam()), model::precision_on("cuda", "float32"), 2e-4, 2e-3);
}

TEST_P(GoldenAdapters, AreMergedIntoACopy) {
  const Case golden = read_case(GetParam());
  const Sequences sequences(golden.model);
  const auto network =
      model::load_network(golden_models::directory(golden.model), model::Precision::of("float32"));
  model::load_adapters(*network, golden.directory());
  const Tensor before = network->weights().flat().clone();
  const auto merged = model::merged(*network);
  EXPECT_NEAR(sequences.loss(*merged), number(golden.golden.at("merged_loss")), 4e-5);
  EXPECT_TRUE(network->weights().flat().equal(before));
  const json::object& norms = golden.golden.at("merged_norms").as_object();
  int64_t compared = 0;
  for (const model::NamedWeight& weight : merged->weights().tensors()) {
    const json::value* norm = norms.if_contains(weight.name);
    if (norm == nullptr) continue;
    ++compared;
    const Tensor view = model::Weights::view(merged->weights().flat(), weight);
    EXPECT_NEAR(view.norm().item<double>(), number(*norm), 1e-4) << weight.name;
  }
  EXPECT_GT(compared, 0);
}

TEST_P(GoldenAdapters, AreWrittenAsTheyWereRead) {
  const Case golden = read_case(GetParam());
  const auto network =
      model::load_network(golden_models::directory(golden.model), model::Precision::of("float32"));
  model::load_adapters(*network, golden.directory());
  const fs::path directory =
      fs::path(::testing::TempDir()) / ("adapter_" + golden.model + "_" + golden.name);
  fs::remove_all(directory);
  fs::create_directories(directory);
  model::write_adapter(directory, *network->adapters()->at(0));
  const model::SafetensorsFile one(golden.directory() / "adapter_model.safetensors"),
      other(directory / "adapter_model.safetensors");
  ASSERT_EQ(one.tensors().size(), other.tensors().size());
  for (const auto& [name, tensor] : one.tensors()) {
    ASSERT_TRUE(other.tensors().contains(name)) << name;
    EXPECT_TRUE(other.read(name).equal(one.read(name).to(at::kFloat))) << name;
  }
  const model::AdapterFile again(directory, network->config());
  EXPECT_EQ(again.form().pairs.size(), network->adapters()->at(0)->form().pairs.size());
  for (const auto& pair : network->adapters()->at(0)->form().pairs) {
    ASSERT_NE(again.form().find(pair.module), nullptr) << pair.module;
    EXPECT_EQ(again.form().find(pair.module)->scale, pair.scale) << pair.module;
  }
  fs::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenAdapters, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '/', '_');
  return name;
});

class AdaptedFamilies : public ::testing::TestWithParam<const char*> {};

/// Every matrix of every kind of model takes its pair in the forward pass and in the backward pass.
TEST_P(AdaptedFamilies, ComputeWhatTheMergedModelDoes) {
  const Sequences sequences(GetParam());
  const auto network =
      model::load_network(golden_models::directory(GetParam()), model::Precision::of("float32"));
  model::AdapterConfig config;
  config.rank = 2;
  config.alpha = 4;
  config.targets = {"all-linear"};
  const double base_loss = sequences.loss(*network);
  model::add_adapters(*network, model::form_of(config, network->config()));
  EXPECT_EQ(sequences.loss(*network), base_loss);  // zero pairs
  model::Weights& trained = network->trained();
  at::manual_seed(5);
  for (const model::NamedWeight& weight : trained.tensors())
    model::Weights::view(trained.flat(), weight).uniform_(-0.1, 0.1);
  const double loss = sequences.loss(*network);
  EXPECT_GT(std::abs(loss - base_loss), 1e-3);
  EXPECT_NEAR(sequences.loss(*model::merged(*network)), loss, 2e-4);

  trained.enable_grad();
  sequences.add_gradients(*network);
  for (const model::NamedWeight& weight : trained.tensors()) {
    if (weight.name.find(".experts.") != std::string::npos) continue;  // no token may visit one
    EXPECT_GT(model::Weights::view(trained.grad(), weight).norm().item<double>(), 0) << weight.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdaptedFamilies, ::testing::ValuesIn(golden_models::kinds()),
                         golden_models::name_of);

TEST(GoldenAdapterFiles, OfDoraAreRefusedByName) {
  const model::ModelConfig model = model::read_model_config(golden_models::directory("qwen3"));
  try {
    model::AdapterFile(adapters_folder() / "qwen3/dora", model);
    FAIL() << "DoRA was read";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("use_dora"), std::string::npos) << error.what();
  }
}

/// Two adapters and the model itself in one batch.
TEST(MixedAdapters, EachRowHasTheBitsThatItHasAlone) {
  const at::NoGradGuard no_grad;
  for (const auto& [model, one, other] :
       {std::tuple{"qwen3", "qv_r8", "all_linear_rslora"},
        std::tuple{"qwen3_moe", "experts_each", "experts_fused"}}) {
    SCOPED_TRACE(model);
    const auto network =
        model::load_network(golden_models::directory(model), model::Precision::of("float32"));
    auto adapters = std::make_shared<model::Adapters>(*network, 2);
    int64_t slot = 0;
    for (const char* name : {one, other}) {
      const model::AdapterFile file(adapters_folder() / model / name, network->config());
      auto tensors = std::make_shared<model::AdapterTensors>(network->config(), network->weights(),
                                                             file.form(), comm::Mesh::single());
      file.read_into(*tensors);
      adapters->put(slot++, tensors);
    }
    network->set_adapters(adapters);
    Sequences sequences(model);
    model::TokenBatch& batch = sequences.batch;
    const auto hidden = [&](const std::vector<int64_t>& slot_of_segment) {
      std::vector<Tensor> rows;
      for (std::size_t i = 0; i < batch.segments.size(); ++i)
        rows.push_back(at::full({batch.segments[i].end - batch.segments[i].begin},
                                slot_of_segment[i], at::kLong));
      batch.adapter_T = at::cat(rows);
      model::TreeAttention attention(batch);
      return network->forward(batch, attention);
    };
    const Tensor mixed = hidden({-1, 0, 1, -1});
    for (const int64_t only : {int64_t{-1}, int64_t{0}, int64_t{1}}) {
      const Tensor alone = hidden({only, only, only, only});
      int64_t compared = 0;
      for (std::size_t i = 0; i < batch.segments.size(); ++i) {
        if ((std::vector<int64_t>{-1, 0, 1, -1})[i] != only) continue;
        const auto& segment = batch.segments[i];
        const auto of_segment = [&](const Tensor& x) {
          return x.narrow(0, segment.begin, segment.end - segment.begin);
        };
        EXPECT_TRUE(of_segment(mixed).equal(of_segment(alone))) << only;
        ++compared;
      }
      EXPECT_GT(compared, 0);
    }
    EXPECT_FALSE(hidden({0, 0, 0, 0}).equal(hidden({1, 1, 1, 1})));
  }
}

}  // namespace
}  // namespace slime::train
