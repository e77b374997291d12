/// Prompts that run in the steps of requests that decode, on a GPU: neither changes a bit of the other.

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "rope_switch_fixture.h"

namespace slime::prompts_beside_decode {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using model::Precision;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

bool lacks_indexers(const model::ModelConfig& config) {
  return !golden_models::has_indexers(config);
}

/// Five that decode for long, with prompts that are computed together in one step.
std::vector<GenerateRequest> decoding(int64_t vocabulary) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(sampled_request(some_tokens(3, i, vocabulary), 150, 40 + i));
    requests.back().rid = "decode " + std::to_string(i);
    requests.back().sampling.frequency_penalty = i == 1 ? 0.5 : 0;
    requests.back().top_logprobs_num = i == 2 ? 3 : 0;
  }
  return requests;
}

/// Prompts of many chunks, which draw one token or none and so never decode. Their lengths are even and so
/// is a chunk's: none has one row.
std::vector<GenerateRequest> prompts(int64_t vocabulary) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) {
    const auto ids = some_tokens(60 + 14 * i, 100 + i, vocabulary);
    requests.push_back(sampled_request(ids, i % 2, 70 + i));
    requests.back().rid = "prompt " + std::to_string(i);
    if (i >= 3) requests.back().logprob_start_len = i == 4 ? 31 : 0;
    if (i == 5) requests.back().top_logprobs_num = 4;
  }
  return requests;
}

struct Outcome {
  std::vector<GenerateUpdate> decoded, scored;
};

void submit_together(TestEngine& bench, const std::vector<GenerateRequest>& requests,
                     const engine::EngineClient::OnUpdate& sink) {
  ASSERT_TRUE(bench.engine().pause(engine::PauseMode::kInPlace));
  for (const GenerateRequest& request : requests) bench.engine().submit(request, sink);
  ASSERT_TRUE(bench.engine().resume());
}

Outcome run(const char* model, const Precision& precision, bool decodes, bool has_prompts) {
  // Without prefixes no prompt halts before its last token, which would then decode.
  TestEngine bench(model, {.max_prefill_tokens = 16, .enable_prefix_cache = false}, precision);
  const int64_t vocabulary = std::min<int64_t>(300, bench.network().config().vocab_size);
  std::mutex mutex;
  std::vector<std::string> ended;  // rids, in order; guarded by mutex
  const auto sink = [&, take = bench.responses().sink()](GenerateUpdate update) {
    if (update.finish) {
      const std::lock_guard lock(mutex);
      ended.push_back(update.rid);
    }
    take(std::move(update));
  };
  Outcome outcome;
  if (decodes) {
    submit_together(bench, decoding(vocabulary), sink);
    bench.responses().wait_for_tokens("decode 4", 5);  // recorded by then
  }
  if (has_prompts) {
    submit_together(bench, prompts(vocabulary), sink);
    for (const GenerateRequest& request : prompts(vocabulary))
      outcome.scored.push_back(bench.responses().wait(request.rid));
  }
  if (decodes)
    for (const GenerateRequest& request : decoding(vocabulary))
      outcome.decoded.push_back(bench.responses().wait(request.rid));
  if (decodes && has_prompts) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_TRUE(ended[i].starts_with("prompt")) << "all prompts ran beside those that decode";
  }
  return outcome;
}

void expect_same_bits(const std::vector<GenerateUpdate>& a, const std::vector<GenerateUpdate>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].finish->kind, engine::FinishReason::Kind::kLength) << a[i].finish->message;
    EXPECT_EQ(a[i].output_ids, b[i].output_ids) << a[i].rid;
    EXPECT_EQ(a[i].output_log_probs, b[i].output_log_probs) << a[i].rid;
    EXPECT_EQ(a[i].output_top, b[i].output_top) << a[i].rid;
    EXPECT_EQ(a[i].input_log_probs, b[i].input_log_probs) << a[i].rid;
    EXPECT_EQ(a[i].input_top, b[i].input_top) << a[i].rid;
  }
}

class PromptsBesideDecode : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, PromptsBesideDecode,
                         ::testing::ValuesIn(golden_models::kinds(lacks_indexers)),
                         golden_models::name_of);

TEST_P(PromptsBesideDecode, AndDecodeChangeNoBitOfEachOtherOnAGpu) {
  SLIME_NEEDS_GPU();
  for (const char* dtype : {"bfloat16", "float32"}) {
    SCOPED_TRACE(dtype);
    const Precision precision = Precision::on_gpu(dtype);
    const Outcome together = run(GetParam(), precision, true, true);
    expect_same_bits(together.decoded, run(GetParam(), precision, true, false).decoded);
    expect_same_bits(together.scored, run(GetParam(), precision, false, true).scored);
  }
}

class PromptsBesideDecodeWithRopeSwitch : public testing::RopeSwitch {};

/// A sequence that passes its rotary switch becomes a prompt that ends with a token of the step before,
/// which is on the device alone, and the others decode in that step.
TEST_F(PromptsBesideDecodeWithRopeSwitch, MayEndWithATokenOfTheStepBeforeOnAGpu) {
  SLIME_NEEDS_GPU();
  const auto outputs = [&](int64_t others) {
    TestEngine bench(network(Precision::on_gpu("float32")), {});
    for (int64_t i = 0; i < others; ++i) {
      GenerateRequest request =
          sampled_request(ids(static_cast<std::size_t>(10 + i)), 60, static_cast<uint64_t>(i));
      request.rid = "other " + std::to_string(i);
      bench.submit(request);
    }
    if (others > 0) bench.responses().wait_for_tokens("other 0", 3);
    const GenerateUpdate out = bench.generate(testing::greedy_request(ids(90), 16));
    for (int64_t i = 0; i < others; ++i) bench.responses().wait("other " + std::to_string(i));
    return out.output_ids;
  };
  const auto alone = outputs(0);
  EXPECT_EQ(alone.size(), 16U);
  for (const int64_t others : {1, 3, 7}) EXPECT_EQ(outputs(others), alone) << others;
}

}  // namespace
}  // namespace slime::prompts_beside_decode
