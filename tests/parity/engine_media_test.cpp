// A prompt with a span whose rows come from elsewhere has the tokens of the same prompt as ids.

#include <gtest/gtest.h>

#include "engine_rank_cases.h"
#include "engine_rank_threads.h"
#include "media_cases.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::TestEngine;

GenerateRequest with_picture(GenerateRequest request, int64_t begin, int64_t end) {
  request.media.push_back(testing::hide(request.input_ids, begin, end));
  return request;
}

TestEngine engine_with_rows(const char* model, engine::EngineConfig config = {}) {
  return TestEngine(testing::with_own_rows(model::load_network(golden_models::directory(model),
                                                               model::Precision::of("float32"))),
                    config);
}

void expect_tokens_of(const GenerateUpdate& got, const GenerateUpdate& expected) {
  EXPECT_EQ(got.output_ids, expected.output_ids);
  EXPECT_EQ(got.output_log_probs, expected.output_log_probs);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->kind, expected.finish->kind) << got.finish->message;
}

class MediaInTheEngine : public ::testing::TestWithParam<const char*> {};

/// Chunks end inside the span. No prompt is read from the cache, so numbers are the same bit by bit.
TEST_P(MediaInTheEngine, RowsFromElsewhereGiveTheTokensOfTheSameIds) {
  const engine::EngineConfig config{.max_prefill_tokens = 16, .enable_prefix_cache = false};
  TestEngine plain(GetParam(), config);
  TestEngine bench = engine_with_rows(GetParam(), config);
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{5, 33}, {0, 3}, {38, 40}, {0, 40}}) {
    const auto request = testing::sampled_request(testing::some_tokens(40), 12, 7);
    const GenerateUpdate got = bench.generate(with_picture(request, begin, end));
    expect_tokens_of(got, plain.generate(request));
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, MediaInTheEngine,
                         ::testing::Values("qwen3", "qwen3_moe", "qwen3_next", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MediaInAnEngine, EqualAttachmentsShareTheirPrefixAndOthersNothing) {
  TestEngine plain("qwen3", {});
  TestEngine bench = engine_with_rows("qwen3");
  const auto first = testing::greedy_request(testing::some_tokens(60, 3), 8);
  auto second = first;
  for (int64_t i = 20; i < 50; ++i) second.input_ids[i] = 299 - second.input_ids[i];
  const auto pictured = with_picture(first, 20, 50), other = with_picture(second, 20, 50);
  ASSERT_EQ(pictured.input_ids, other.input_ids);

  EXPECT_EQ(bench.generate(pictured).cached_tokens, 0);
  const GenerateUpdate again = bench.generate(pictured);
  EXPECT_EQ(again.cached_tokens, 59) << "all but the last token";
  expect_tokens_of(again, plain.generate(first));
  const GenerateUpdate of_other = bench.generate(other);
  EXPECT_EQ(of_other.cached_tokens, 20) << "the text before the span";
  expect_tokens_of(of_other, plain.generate(second));
  EXPECT_EQ(bench.generate(first).cached_tokens, 20) << "ids are no attachment";
}

TEST(MediaInAnEngine, AGroupComputesItsPromptOnce) {
  TestEngine plain("qwen3", {});
  TestEngine bench = engine_with_rows("qwen3");
  const auto prompt = testing::some_tokens(70);
  int64_t cached = 0;
  std::vector<GenerateRequest> plain_requests;
  for (int i = 0; i < 4; ++i) {
    plain_requests.push_back(testing::sampled_request(prompt, 10, 100 + i));
    plain_requests.back().rid = "sample-" + std::to_string(i);
    bench.submit(with_picture(plain_requests.back(), 10, 60));
    plain.submit(plain_requests.back());
  }
  for (const auto& request : plain_requests) {
    const GenerateUpdate got = bench.responses().wait(request.rid);
    cached += got.cached_tokens;
    EXPECT_EQ(got.output_ids, plain.responses().wait(request.rid).output_ids);
  }
  EXPECT_EQ(cached, 3 * 69);
}

TEST(MediaInAnEngine, ModelsOfTextRefuseThem) {
  TestEngine bench("qwen3", {});
  const GenerateUpdate update =
      bench.generate(with_picture(testing::greedy_request(testing::some_tokens(9), 3), 2, 4));
  ASSERT_TRUE(update.finish);
  EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kBadRequest);
  EXPECT_NE(update.finish->message.find("text alone"), std::string::npos);
}

TEST(MediaInAnEngine, SpansThatAreNoneAreRefused) {
  TestEngine bench = engine_with_rows("qwen3");
  auto request = with_picture(testing::greedy_request(testing::some_tokens(9), 3), 2, 4);
  request.media[0].end = 10;
  const GenerateUpdate update = bench.generate(request);
  ASSERT_TRUE(update.finish);
  EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kBadRequest);
}

TEST(MediaInAnEngine, RanksOfAnEngineHaveThemToo) {
  TestEngine plain("qwen3", {});
  const Tensor table_VH = [&] {
    for (const model::NamedWeight& weight : plain.network().weights().tensors()) {
      if (weight.name == "model.embed_tokens.weight")
        return model::Weights::view(plain.network().weights().flat(), weight);
    }
    return Tensor();
  }();
  const testing::MakeSlices slices = testing::slices_of("qwen3");
  testing::ParallelEngine two(
      [&](const comm::Mesh& mesh) {
        auto network = slices(mesh);
        network->set_media_source(std::make_unique<testing::TableRows>(table_VH));
        return network;
      },
      2, {.max_prefill_tokens = 16});
  std::vector<GenerateRequest> requests, expected;
  std::vector<GenerateUpdate> of_plain;
  for (int i = 0; i < 3; ++i) {
    expected.push_back(testing::greedy_request(testing::some_tokens(40, 3 + i), 10));
    expected.back().rid = "r" + std::to_string(i);
    requests.push_back(with_picture(expected.back(), 6, 30));
    of_plain.push_back(plain.generate(expected.back()));
  }
  testing::expect_same(two.generate(requests), of_plain);
}

}  // namespace
}  // namespace slime
