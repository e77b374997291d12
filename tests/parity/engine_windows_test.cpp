/// Models with sliding windows in all layers or in some: long responses in a cache that is smaller than
/// they are, with the numbers of a run that gives nothing back.

#include <gtest/gtest.h>

#include <string>

#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using model::Precision;
using testing::greedy_request;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

struct Model {
  std::string name;
  int64_t num_groups;  // PageWindow::num_groups
  int64_t few_pages;   // of which no two requests of the workload have enough
};

/// Layers that see all tokens need 16 pages for a request of 250. A group of layers with a window needs
/// those of the window, of two blocks of 64 and of a chunk of 16: 10 pages for a window of 16.
///   mistral, every layer has a window:   10 + 2
///   gpt_oss, two layers of four:         16 + 10 + 2, without windows 32
///   gemma3_text, three of four:          16 + 3 * 10 + 4, without windows 64
///   gemma2, two of three:                16 + 2 * 10 + 3, without windows 48
Model model_of(const char* name) {
  const std::vector<int64_t> window =
      model::read_model_config(golden_models::directory(name)).window;
  const int64_t windows = std::ranges::count_if(window, [](int64_t size) { return size > 0; }),
                others = std::ssize(window) - windows, groups = others == 0 ? 0 : windows / others,
                tables = std::max<int64_t>(groups, 1),
                pages = (std::ranges::max(window) + 2 * 64 + 16 + 15) / 16;
  return {name, groups, (others == 0 ? 0 : 16) + tables * pages + tables + 1};
}

std::vector<Model> models_with_windows() {
  std::vector<Model> models;
  for (const char* name : golden_models::all(golden_models::has_windows))
    models.push_back(model_of(name));
  return models;
}

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

/// A group of four, a prompt of many chunks, and others; all longer than the cache of `tight`.
std::vector<GenerateRequest> workload() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 8; ++i) {
    const int64_t length = i < 4 ? 61 : i == 4 ? 190 : 5 + 17 * i;
    requests.push_back(sampled_request(some_tokens(length, i < 4 ? 1 : i), 250 - length, 100 + i));
    requests.back().rid = std::to_string(i);
  }
  return requests;
}

struct Outcome {
  std::vector<GenerateUpdate> updates;
  engine::EngineLoad load;  // behind the last of them
};

Outcome run(const Model& model, EngineConfig config, int64_t num_pages,
            const Precision& precision) {
  auto network = model::load_network(golden_models::directory(model.name), precision);
  EXPECT_EQ(engine::page_window(EngineConfig{}, *network).num_groups, model.num_groups);
  config.max_prefill_tokens = 16;
  const at::ScalarType type = engine::kv_storage_type("auto", *network);
  config.kv_cache_bytes =
      num_pages *
      engine::kv_page_bytes(*network, type, engine::page_window(config, *network).num_groups);
  TestEngine bench(std::move(network), config);
  for (GenerateRequest request : workload()) {
    request.return_routed_experts = config.records_experts;
    bench.submit(request);
  }
  Outcome outcome;
  for (const GenerateRequest& request : workload())
    outcome.updates.push_back(bench.responses().wait(request.rid));
  // The next turn of the last dialogue.
  GenerateRequest next = workload().back();
  next.input_ids.insert(next.input_ids.end(), outcome.updates.back().output_ids.begin(),
                        outcome.updates.back().output_ids.end() - 10);
  next.rid = "next";
  next.sampling.max_new_tokens = 10;
  outcome.updates.push_back(bench.generate(next));
  outcome.load = *bench.engine().load();
  return outcome;
}

Outcome run_with_all_pages(const Model& model, const Precision& precision,
                           EngineConfig config = {}) {
  config.gives_pages_back = false;
  return run(model, config, 800, precision);
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.updates.size(), b.updates.size());
  for (std::size_t i = 0; i < a.updates.size(); ++i) {
    ASSERT_TRUE(a.updates[i].finish->kind == engine::FinishReason::Kind::kLength)
        << a.updates[i].finish->message;
    EXPECT_EQ(a.updates[i].output_ids, b.updates[i].output_ids) << i;
    EXPECT_EQ(a.updates[i].output_log_probs, b.updates[i].output_log_probs) << i;
    EXPECT_EQ(a.updates[i].routed_experts, b.updates[i].routed_experts) << i;
  }
}

class EngineWindows : public ::testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Models, EngineWindows, ::testing::ValuesIn(models_with_windows()),
                         [](const auto& test) { return test.param.name; });

TEST_P(EngineWindows, LongResponsesRunInACacheThatIsSmallerThanTheyAre) {
  const Model model = GetParam();
  const Precision precision = Precision::of("float32");
  const Outcome whole = run_with_all_pages(model, precision),
                tight = run(model, {}, model.few_pages, precision);
  expect_same_bits(tight, whole);
  EXPECT_EQ(whole.load.num_kv_tokens_given_back, 0);
  EXPECT_GE(tight.load.num_kv_tokens_given_back, 8 * 128);
  EXPECT_EQ(tight.load.num_kv_tokens, model.few_pages * 16 / (1 + model.num_groups));
  expect_same_bits(run(model, {}, 800, precision), whole);
  expect_same_bits(run(model, {.enable_prefix_cache = false}, model.few_pages, precision), whole);
}

/// Alone and without prefixes: where a chunk ends decides which keys are read before they are rounded.
TEST_P(EngineWindows, OfBfloat16HaveTheSameBitsToo) {
  const Model model = GetParam();
  const Precision precision = Precision::of("bfloat16");
  const EngineConfig alone{.max_running_requests = 1, .enable_prefix_cache = false};
  expect_same_bits(run(model, alone, model.few_pages, precision),
                   run_with_all_pages(model, precision, alone));
}

TEST_P(EngineWindows, WithoutGivingBackSuchACacheRefusesThem) {
  const Model model = GetParam();
  auto network =
      model::load_network(golden_models::directory(model.name), Precision::of("float32"));
  EngineConfig config{.max_prefill_tokens = 16, .gives_pages_back = false};
  config.kv_cache_bytes =
      model.few_pages * engine::kv_page_bytes(*network, at::kFloat, model.num_groups);
  TestEngine bench(std::move(network), config);
  const GenerateUpdate out = bench.generate(greedy_request(some_tokens(230), 20));
  EXPECT_EQ(out.finish->kind, engine::FinishReason::Kind::kAbort);
}

TEST_P(EngineWindows, FurtherTurnsFindTheEndOfTheOneBefore) {
  const Model model = GetParam();
  const Outcome outcome = run(model, {}, 800, Precision::of("float32"));
  EXPECT_GE(outcome.updates.back().cached_tokens, outcome.updates.back().prompt_tokens - 16);
}

/// Choices lie beside pages of layers that see all tokens. Where every layer has a window nothing is given
/// back.
TEST(EngineWindowsOfExperts, ChoicesAreThoseOfARunThatGivesNothingBack) {
  const Precision precision = Precision::of("float32");
  const EngineConfig records{.records_experts = true};
  const Model model = model_of("gpt_oss");
  const Outcome whole = run_with_all_pages(model, precision, records),
                tight = run(model, records, model.few_pages, precision);
  expect_same_bits(tight, whole);
  EXPECT_GE(tight.load.num_kv_tokens_given_back, 8 * 128);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(tight.updates[i].routed_experts.empty());
}

TEST_P(EngineWindows, OnAGpuToo) {
  SLIME_NEEDS_GPU();
  const Model model = GetParam();
  for (const char* dtype : {"float32", "bfloat16"}) {
    const Precision precision = Precision::on_gpu(dtype);
    // One at a time: other steps would have other shapes, and sums another order.
    const EngineConfig one_by_one{.max_running_requests = 1};
    const Outcome whole = run_with_all_pages(model, precision, one_by_one);
    const Outcome tight = run(model, one_by_one, model.few_pages, precision);
    expect_same_bits(tight, whole);
    expect_same_bits(run(model, one_by_one, 800, precision), whole);
    EXPECT_GE(tight.load.num_kv_tokens_given_back, 8 * 128);
  }
  const Outcome cpu = run_with_all_pages(model, Precision::of("float32"));
  for (const int64_t pages : {model.few_pages, int64_t{800}}) {
    const Outcome together = run(model, {}, pages, Precision::on_gpu("float32"));
    for (std::size_t i = 0; i < cpu.updates.size(); ++i) {
      EXPECT_EQ(together.updates[i].output_ids, cpu.updates[i].output_ids) << i;
      ASSERT_EQ(together.updates[i].output_log_probs.size(),
                cpu.updates[i].output_log_probs.size());
      for (std::size_t t = 0; t < cpu.updates[i].output_log_probs.size(); ++t)
        EXPECT_NEAR(together.updates[i].output_log_probs[t], cpu.updates[i].output_log_probs[t],
                    1e-4);
    }
  }
}

}  // namespace
}  // namespace slime
