/// Models whose every layer has a sliding window: long responses in a cache that is smaller than they are,
/// with the numbers of a run that gives nothing back.

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

constexpr const char* kModel = "mistral";  // two layers, windows of 16 tokens, a context of 256

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

Outcome run(EngineConfig config, int64_t num_pages, const Precision& precision) {
  auto network = model::load_network(testing::fixture_directory(kModel), precision);
  config.max_prefill_tokens = 16;
  const at::ScalarType type = engine::kv_storage_type("auto", *network);
  config.kv_cache_bytes = num_pages * engine::kv_page_bytes(*network, type);
  TestEngine bench(std::move(network), config);
  for (const GenerateRequest& request : workload()) bench.submit(request);
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

/// Nothing is given back where an engine records experts, which this model does not have.
Outcome run_with_all_pages(const Precision& precision, EngineConfig config = {}) {
  config.records_experts = true;
  return run(config, 400, precision);
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.updates.size(), b.updates.size());
  for (std::size_t i = 0; i < a.updates.size(); ++i) {
    ASSERT_TRUE(a.updates[i].finish->kind == engine::FinishReason::Kind::kLength)
        << a.updates[i].finish->message;
    EXPECT_EQ(a.updates[i].output_ids, b.updates[i].output_ids) << i;
    EXPECT_EQ(a.updates[i].output_log_probs, b.updates[i].output_log_probs) << i;
  }
}

constexpr int64_t kFewPages = 12;  // 192 tokens: 16 of a window, two blocks of 64, a chunk of 16

TEST(EngineWindows, LongResponsesRunInACacheThatIsSmallerThanTheyAre) {
  SLIME_NEEDS_MODEL(kModel);
  const Precision precision = Precision::of("float32");
  const Outcome whole = run_with_all_pages(precision), tight = run({}, kFewPages, precision);
  expect_same_bits(tight, whole);
  EXPECT_EQ(whole.load.num_kv_tokens_given_back, 0);
  EXPECT_GE(tight.load.num_kv_tokens_given_back, 8 * 128);
  EXPECT_EQ(tight.load.num_kv_tokens, kFewPages * 16);
  expect_same_bits(run({}, 400, precision), whole);
  expect_same_bits(run({.enable_prefix_cache = false}, kFewPages, precision), whole);
}

TEST(EngineWindows, WithoutGivingBackSuchACacheRefusesThem) {
  SLIME_NEEDS_MODEL(kModel);
  auto network = model::load_network(testing::fixture_directory(kModel), Precision::of("float32"));
  EngineConfig config{.max_prefill_tokens = 16, .records_experts = true};
  config.kv_cache_bytes = kFewPages * engine::kv_page_bytes(*network, at::kFloat);
  TestEngine bench(std::move(network), config);
  const GenerateUpdate out = bench.generate(greedy_request(some_tokens(195), 55));
  EXPECT_EQ(out.finish->kind, engine::FinishReason::Kind::kAbort);
}

TEST(EngineWindows, FurtherTurnsFindTheEndOfTheOneBefore) {
  SLIME_NEEDS_MODEL(kModel);
  const Outcome outcome = run({}, 400, Precision::of("float32"));
  EXPECT_GE(outcome.updates.back().cached_tokens, outcome.updates.back().prompt_tokens - 16);
}

TEST(EngineWindows, OnAGpuToo) {
  SLIME_NEEDS_GPU();
  SLIME_NEEDS_MODEL(kModel);
  for (const char* dtype : {"float32", "bfloat16"}) {
    const Precision precision = Precision::on_gpu(dtype);
    // One at a time: other steps would have other shapes, and sums another order.
    const EngineConfig one_by_one{.max_running_requests = 1};
    const Outcome roomy = run(one_by_one, 400, precision);
    const Outcome tight = run(one_by_one, kFewPages, precision);
    expect_same_bits(tight, roomy);
    EXPECT_GE(tight.load.num_kv_tokens_given_back, 8 * 128);
  }
  // A GPU always gives pages back: what gives nothing back is a CPU.
  const Outcome cpu = run_with_all_pages(Precision::of("float32"));
  const Outcome together = run({}, kFewPages, Precision::on_gpu("float32"));
  for (std::size_t i = 0; i < cpu.updates.size(); ++i) {
    EXPECT_EQ(together.updates[i].output_ids, cpu.updates[i].output_ids) << i;
    ASSERT_EQ(together.updates[i].output_log_probs.size(), cpu.updates[i].output_log_probs.size());
    for (std::size_t t = 0; t < cpu.updates[i].output_log_probs.size(); ++t)
      EXPECT_NEAR(together.updates[i].output_log_probs[t], cpu.updates[i].output_log_probs[t],
                  1e-4);
  }
}

}  // namespace
}  // namespace slime
