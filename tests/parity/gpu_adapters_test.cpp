/// Adapters beside all linear layers of an engine on a GPU, whose steps of decode are launched, recorded and replayed:
/// log-probs of what it draws, next to the trainer's and to those of the same tokens in a prompt.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "engine/served_adapters.h"
#include "engine_beside_trainer.h"
#include "kernels/gpu/for_tests.h"
#include "made_up_adapter.h"

namespace slime::gpu_adapters {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::sampled_request;
using testing::some_tokens;

std::unique_ptr<model::Network> plain_network() {
  at::manual_seed(7);
  return model::make_uniform_network(testing::narrow_qwen3(128),
                                     model::Precision::on_gpu("bfloat16"), 0.6);
}

EngineConfig config_of_many() { return {.max_running_requests = 256, .kv_cache_bytes = 512 << 20}; }

/// How far the trainer's log-probs of some tokens are from those without the adapter.
double moved_by_adapter(model::Network& network) {
  const std::vector<TokenId> tokens = some_tokens(200);
  const Tensor with = testing::trainers_log_probs(network, tokens, 100);
  const model::AdaptersOff off(network.adapters());
  return (with - testing::trainers_log_probs(network, tokens, 100)).abs().mean().item<double>();
}

/// Rows of each way that a product takes: one or two, up to 32, up to 64, and more. Ranks of whole vector loads and
/// of none.
TEST(GpuAdapters, DecodeGivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  std::map<int64_t, double> plain;  // by the number of requests
  for (const int64_t count : {1, 2, 18, 40, 200})
    plain[count] = testing::engine_beside_trainer(*plain_network(), config_of_many(), count).mean;
  for (const int64_t rank : {8, 33}) {
    const auto network = plain_network();
    testing::add_made_up_adapter(*network, rank);
    EXPECT_GT(moved_by_adapter(*network), 0.2) << rank;
    for (const auto& [count, mean_of_plain] : plain) {
      const auto found = testing::engine_beside_trainer(*network, config_of_many(), count);
      RecordProperty(fmt::format("mean_difference_{}_{}", rank, count), std::to_string(found.mean));
      EXPECT_LT(found.mean, 1.5 * mean_of_plain + 5e-3)
          << count << " requests, rank " << rank << "; without " << mean_of_plain;
    }
  }
}

std::vector<GenerateUpdate> answers_of(engine::Engine& engine,
                                       const std::vector<GenerateRequest>& requests) {
  testing::Responses responses;
  for (const GenerateRequest& request : requests) engine.submit(request, responses.sink());
  std::vector<GenerateUpdate> answers;
  for (const GenerateRequest& request : requests) answers.push_back(responses.wait(request.rid));
  return answers;
}

/// Mean absolute difference between the log-probs that responses were drawn with and those that they have in a prompt.
double difference_from_prompts(engine::Engine& engine, std::vector<GenerateRequest> requests,
                               const std::vector<GenerateUpdate>& sampled) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].rid += " scored";
    requests[i].input_ids.insert(requests[i].input_ids.end(), sampled[i].output_ids.begin(),
                                 sampled[i].output_ids.end());
    requests[i].sampling.max_new_tokens = 0;
    requests[i].logprob_start_len = 0;
  }
  const std::vector<GenerateUpdate> scored = answers_of(engine, requests);
  double sum = 0;
  int64_t count = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t begin = scored[i].input_log_probs.size() - sampled[i].output_ids.size();
    for (std::size_t t = 0; t < sampled[i].output_ids.size(); ++t, ++count)
      sum += std::abs(sampled[i].output_log_probs[t] - *scored[i].input_log_probs[begin + t]);
  }
  return sum / static_cast<double>(count);
}

/// Of a batch requests take the first adapter, none and the second by turns.
TEST(GpuAdapters, RowsOfABatchDrawWithTheAdaptersThatTheirRequestsName) {
  SLIME_NEEDS_GPU();
  const auto network = plain_network();
  const SystemClock clock;
  engine::ServedAdapters adapters(*network, 2);
  EngineConfig config = config_of_many();
  config.adapters = &adapters;
  engine::Engine engine(*network, config, clock);
  adapters.change_with(engine);
  ASSERT_TRUE(adapters.put("first", testing::made_up_adapter(*network, 32)));
  ASSERT_TRUE(adapters.put("second", testing::made_up_adapter(*network, 8)));
  const std::array<std::string, 3> names{"first", "", "second"};
  for (const std::size_t count : {1, 2, 3, 20, 80}) {
    std::vector<GenerateRequest> requests;
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = static_cast<int64_t>(i);
      requests.push_back(sampled_request(some_tokens(40 + number % 7, number % 5), 30, 100 + i));
      requests.back().adapter = names[i % names.size()];
    }
    for (int round = 0; round < 3; ++round) {  // as it is, recorded, replayed
      for (std::size_t i = 0; i < count; ++i)
        requests[i].rid = fmt::format("{} of {}, round {}", i, count, round);
      const std::vector<GenerateUpdate> sampled = answers_of(engine, requests);
      EXPECT_LT(difference_from_prompts(engine, requests, sampled), 0.08) << count;
      std::vector<GenerateRequest> others = requests;
      for (std::size_t i = 0; i < count; ++i) {
        others[i].rid += " of another";
        others[i].adapter = names[(i + 1) % names.size()];
      }
      EXPECT_GT(difference_from_prompts(engine, others, sampled), 0.2) << count;
    }
  }
}

}  // namespace
}  // namespace slime::gpu_adapters
