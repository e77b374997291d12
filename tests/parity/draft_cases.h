#pragma once

/// Requests of all sampling forms, for engines with drafts and without.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine_fixture.h"

namespace slime::testing {

/// Every sampling form, some of them with a prompt that others have too.
inline std::vector<engine::GenerateRequest> requests_of_all_forms(int64_t vocab_size) {
  std::vector<engine::GenerateRequest> requests;
  const auto add = [&](const auto& change) {
    const auto ordinal = static_cast<int64_t>(requests.size());
    engine::GenerateRequest request =
        sampled_request(some_tokens(9 + ordinal % 3 * 12, static_cast<TokenId>(3 + ordinal % 3),
                                    std::min<int64_t>(vocab_size, 300)),
                        24 + ordinal % 7, static_cast<uint64_t>(100 + ordinal));
    change(request);
    requests.push_back(std::move(request));
  };
  for (int i = 0; i < 2; ++i) {
    add([](engine::GenerateRequest& it) { it.sampling.temperature = 0; });
    add([](engine::GenerateRequest&) {});
    add([](engine::GenerateRequest& it) { it.sampling.temperature = 0.3; });
    add([](engine::GenerateRequest& it) { it.sampling.top_k = 3; });
    add([](engine::GenerateRequest& it) {
      it.sampling.top_p = 0.5;
      it.return_top_p_token_ids = it.return_top_p_log_probs = true;
    });
    add([](engine::GenerateRequest& it) { it.sampling.min_p = 0.3; });
    add([](engine::GenerateRequest& it) {
      it.sampling.temperature = 0;
      it.sampling.frequency_penalty = 0.4;
      it.sampling.presence_penalty = 0.2;
      it.sampling.repetition_penalty = 1.2;
    });
    add([](engine::GenerateRequest& it) {
      it.sampling.frequency_penalty = -1;  // repeats itself
      it.sampling.logit_bias = {{7, 2.0}, {9, 3.0}};
    });
    add([](engine::GenerateRequest& it) {
      it.sampling.temperature = 0.2;
      it.sampling.ignore_eos = false;
      it.sampling.min_new_tokens = 10;
      it.sampling.stop_token_ids = {7, 11, 19, 23, 40};
    });
    add([](engine::GenerateRequest& it) {
      it.top_logprobs_num = 3;
      it.token_ids_logprob = {1, 5};
      it.logprob_start_len = 2;
    });
  }
  return requests;
}

/// Answers to them twice, the second time behind the first: drafts are the responses of the first. Each time the engine
/// has all of them before its first step, so that steps have the same requests on a machine of any speed.
inline std::vector<engine::GenerateUpdate> answers_to(std::vector<engine::GenerateRequest> requests,
                                                      TestEngine& bench) {
  static int num_calls = 0;  // an engine may be asked several times
  const std::string call = std::to_string(num_calls++);
  std::vector<engine::GenerateUpdate> answers;
  for (const std::string round : {"first", "second"}) {
    EXPECT_TRUE(bench.engine().pause(engine::PauseMode::kInPlace));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].rid = call + " " + round + " " + std::to_string(i);
      bench.submit(requests[i]);
    }
    EXPECT_TRUE(bench.engine().resume());
    for (const engine::GenerateRequest& request : requests)
      answers.push_back(bench.responses().wait(request.rid));
  }
  return answers;
}

inline void expect_equal(const engine::GenerateUpdate& got, const engine::GenerateUpdate& wanted) {
  EXPECT_EQ(got.output_ids, wanted.output_ids) << got.rid;
  EXPECT_EQ(got.output_log_probs, wanted.output_log_probs) << got.rid;
  EXPECT_EQ(got.output_top, wanted.output_top) << got.rid;
  EXPECT_EQ(got.output_asked, wanted.output_asked) << got.rid;
  EXPECT_EQ(got.top_p_ids, wanted.top_p_ids) << got.rid;
  EXPECT_EQ(got.top_p_counts, wanted.top_p_counts) << got.rid;
  EXPECT_EQ(got.top_p_log_probs, wanted.top_p_log_probs) << got.rid;
  EXPECT_EQ(got.input_log_probs, wanted.input_log_probs) << got.rid;
  EXPECT_EQ(got.routed_experts, wanted.routed_experts) << got.rid;
  ASSERT_TRUE(got.finish && wanted.finish);
  EXPECT_EQ(got.finish->kind, wanted.finish->kind) << got.rid;
  EXPECT_EQ(got.finish->matched, wanted.finish->matched) << got.rid;
  EXPECT_EQ(got.finish->message, wanted.finish->message) << got.rid;
}

}  // namespace slime::testing
