/// longrope on a GPU: log-probs of transformers on both sides of the original positions, in engine and
/// trainer, and a response that grows over them.

#include "kernels/gpu/for_tests.h"
#include "rope_switch_fixture.h"

namespace slime {
namespace {

using model::Precision;
using testing::TestEngine;

class GpuRopeSwitch : public testing::RopeSwitch {};

// Float32 on both sides; the sums have other orders than transformers' (engine_rope_switch_test.cpp
// has the same bound on the CPU).
constexpr double kTolerance = 3e-4;

TEST_F(GpuRopeSwitch, ScoresOfPromptsAreThoseOfTransformers) {
  SLIME_NEEDS_GPU();
  for (const char* name : {"phi3 longrope", "phi3 longrope inside", "phi3 longrope in a part"}) {
    SCOPED_TRACE(name);
    TestEngine bench(network(Precision::on_gpu("float32"), name), {});
    for (const auto& [length, expected] : case_named(name).at("lengths").as_object()) {
      const auto wanted = json::value_to<std::vector<double>>(expected);
      auto request = testing::greedy_request(ids(wanted.size() + 1), 0);
      request.logprob_start_len = 0;
      const auto out = bench.generate(request);
      ASSERT_EQ(out.input_log_probs.size(), wanted.size() + 1) << std::string_view(length);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(*out.input_log_probs[i + 1], wanted[i], kTolerance)
            << "token " << i + 1 << " of " << std::string_view(length);
    }
  }
}

TEST_F(GpuRopeSwitch, SamplesWhatTransformersSamples) {
  SLIME_NEEDS_GPU();
  TestEngine bench(network(Precision::on_gpu("float32")), {});
  for (int round = 0; round < 2; ++round)  // as it is, then as a CUDA graph
    expect_what_transformers_samples(bench, kTolerance);
}

TEST_F(GpuRopeSwitch, TheTrainerScoresEachTokenAsItWasSampled) {
  SLIME_NEEDS_GPU();
  TestEngine bench(network(Precision::on_gpu("float32")), {});
  for (const std::size_t length : {20, 90, 95, 96, 97, 120})
    expect_scores_as_sampled(bench, length, kTolerance);
}

}  // namespace
}  // namespace slime
