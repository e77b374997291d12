/// Training arithmetic of whole networks on a GPU: what an engine draws and scores in it has the bits of the trainer's
/// forward pass, whatever shares a step or a batch (docs/decisions/0168-training-arithmetic.md).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine_fixture.h"
#include "exact_networks.h"
#include "kernels/device.h"
#include "kernels/gpu/for_tests.h"
#include "model/router_pass.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::exact_network_of;
using testing::kAllHeads;
using testing::kBiased;
using testing::kExperts;
using testing::kSharedGate;
using testing::kSigmoid;
using testing::kSmall;
using testing::kTiny;
using testing::kWideExperts;
using testing::sampled_request;
using testing::TestEngine;
using Sequence = std::vector<int64_t>;

Sequence random_tokens(std::mt19937& random, int64_t count) {
  Sequence tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int64_t>(random() % 1000));
  return tokens;
}

/// Prompts of many lengths; some begin alike, some are the same.
std::vector<Sequence> made_up_prompts(int64_t count) {
  std::mt19937 random(9);
  const Sequence common = random_tokens(random, 150);
  std::vector<Sequence> prompts;
  for (int64_t i = 0; i < count; ++i) {
    if (i % 4 == 3) {
      prompts.push_back(prompts.back());
      continue;
    }
    Sequence prompt;
    if (i % 3 != 0) prompt.assign(common.begin(), common.begin() + 40 + (i * 29) % 110);
    const Sequence own = random_tokens(random, 2 + static_cast<int64_t>(random() % 260));
    prompt.insert(prompt.end(), own.begin(), own.end());
    prompts.push_back(prompt);
  }
  return prompts;
}

/// A prompt with its responses, as the trainer packs them.
struct Packed {
  model::TokenBatch batch;
  std::vector<std::vector<int64_t>> rows;  // of each sequence, those that predict its response

  Packed(const std::vector<std::pair<Sequence, Sequence>>& sequences, bool shares_prompts) {
    std::vector<int64_t> ids, positions;
    std::map<Sequence, int32_t> prompts;
    const auto add = [&](const Sequence& tokens, int64_t position, int32_t parent) {
      const auto begin = static_cast<int64_t>(ids.size());
      for (const int64_t token : tokens) {
        ids.push_back(token);
        positions.push_back(position++);
      }
      batch.segments.push_back({begin, static_cast<int64_t>(ids.size()), parent});
      return static_cast<int32_t>(batch.segments.size()) - 1;
    };
    // Depth first: sequences of a prompt come together.
    std::vector<std::size_t> order(sequences.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (shares_prompts)
      std::ranges::stable_sort(order, {}, [&](std::size_t i) { return sequences[i].first; });
    rows.resize(sequences.size());
    for (const std::size_t i : order) {
      const auto& [prompt, response] = sequences[i];
      int32_t parent = -1;
      if (shares_prompts) {
        const auto [found, is_new] = prompts.try_emplace(prompt, -1);
        if (is_new) found->second = add(prompt, 0, -1);
        parent = found->second;
      } else {
        parent = add(prompt, 0, -1);
      }
      rows[i].push_back(batch.segments[static_cast<std::size_t>(parent)].end - 1);
      const auto length = static_cast<int64_t>(prompt.size());
      const int32_t own = add(response, length, parent);
      for (int64_t t = 0; t + 1 < std::ssize(response); ++t)
        rows[i].push_back(batch.segments[static_cast<std::size_t>(own)].begin + t);
    }
    const auto on_gpu = [](const std::vector<int64_t>& list) {
      return at::tensor(list, at::kLong).to(at::kCUDA);
    };
    batch.ids_T = on_gpu(ids);
    batch.rotary_row_T = on_gpu(positions);
  }
};

/// By the trainer's forward pass, those of the responses end to end.
Tensor packed_log_probs(model::Network& network,
                        const std::vector<std::pair<Sequence, Sequence>>& sequences,
                        double temperature, bool shares_prompts,
                        kernels::Arithmetic arithmetic = kernels::Arithmetic::kTraining,
                        model::RouterPass* routers = nullptr) {
  Packed packed(sequences, shares_prompts);
  packed.batch.routers = routers;
  std::vector<int64_t> rows, targets;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    rows.insert(rows.end(), packed.rows[i].begin(), packed.rows[i].end());
    targets.insert(targets.end(), sequences[i].second.begin(), sequences[i].second.end());
  }
  model::TreeAttention attention(packed.batch);
  if (arithmetic == kernels::Arithmetic::kTraining) attention.attend_in_pages();
  const Tensor log_probs = [&] {
    const kernels::ArithmeticScope scope(kernels::kernels_for(network.weights().flat()),
                                         arithmetic);
    const Tensor hidden_TH = network.forward(packed.batch, attention);
    return network
        .log_probs(hidden_TH.index_select(0, at::tensor(rows, at::kLong).to(at::kCUDA)),
                   at::tensor(targets, at::kLong).to(at::kCUDA), {.temperature = temperature})
        .logprob_R;
  }();
  if (at::GradMode::is_enabled()) log_probs.sum().backward();
  return log_probs.detach().cpu();
}

/// Log-probs of each response.
std::vector<Tensor> trained_log_probs(model::Network& network,
                                      const std::vector<std::pair<Sequence, Sequence>>& sequences,
                                      double temperature, bool shares_prompts,
                                      bool has_gradients = false) {
  at::AutoGradMode grad_mode(has_gradients);
  const Tensor log_probs = packed_log_probs(network, sequences, temperature, shares_prompts);
  std::vector<Tensor> out;
  int64_t begin = 0;
  for (const auto& [prompt, response] : sequences) {
    out.push_back(log_probs.narrow(0, begin, std::ssize(response)));
    begin += std::ssize(response);
  }
  return out;
}

struct ExactRun {
  const char* name;
  const char* shape;
  int64_t max_prefill = 512, max_running = 32, verify = 16;
  int64_t requests = 24, response = 40;
  double temperature = 1;
  bool has_ties = false;
};

std::vector<GenerateRequest> exact_requests_of(const ExactRun& run) {
  std::vector<GenerateRequest> requests;
  const std::vector<Sequence> prompts = made_up_prompts(run.requests);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back(sampled_request({prompts[i].begin(), prompts[i].end()},
                                       run.response - static_cast<int64_t>(i % 7), 100 + i));
    requests.back().sampling.temperature = run.temperature;
    requests.back().rid = fmt::format("r{}", i);
  }
  return requests;
}

engine::EngineConfig exact_config_of(const ExactRun& run) {
  engine::EngineConfig config;
  config.max_running_requests = run.max_running;
  config.max_prefill_tokens = run.max_prefill;
  config.verify_tokens = run.verify;
  config.context_length = 1024;
  config.kv_cache_bytes = int64_t{512} << 20;
  return config;
}

std::vector<GenerateUpdate> exact_answers_of(TestEngine& bench,
                                             const std::vector<GenerateRequest>& requests) {
  for (const GenerateRequest& request : requests) bench.submit(request);
  std::vector<GenerateUpdate> answers;
  for (const GenerateRequest& request : requests)
    answers.push_back(bench.responses().wait(request.rid));
  return answers;
}

std::vector<std::pair<Sequence, Sequence>> sequences_of(
    const std::vector<GenerateRequest>& requests, const std::vector<GenerateUpdate>& answers) {
  std::vector<std::pair<Sequence, Sequence>> sequences;
  for (std::size_t i = 0; i < requests.size(); ++i)
    sequences.emplace_back(Sequence(requests[i].input_ids.begin(), requests[i].input_ids.end()),
                           Sequence(answers[i].output_ids.begin(), answers[i].output_ids.end()));
  return sequences;
}

class GpuExactEngine : public ::testing::TestWithParam<ExactRun> {};

TEST_P(GpuExactEngine, DrawsWithTheTrainersLogProbsToTheBit) {
  SLIME_NEEDS_GPU();
  const ExactRun& run = GetParam();
  TestEngine bench(exact_network_of(run.shape, run.has_ties), exact_config_of(run));
  const auto requests = exact_requests_of(run);
  const auto answers = exact_answers_of(bench, requests);
  int64_t drafted = 0, kept = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(static_cast<int64_t>(answers[i].output_ids.size()),
              requests[i].sampling.max_new_tokens);
    drafted += answers[i].drafts.num_drafted;
    kept += answers[i].drafts.num_kept;
  }
  // A draw is where a uniform number lies among cumulative sums: among a few likely tokens rounding
  // hardly ever chooses another, among hundreds or all of a vocabulary that are nearly as likely often.
  EXPECT_GT(kept, run.temperature < 0.5 ? drafted / 2 : 0)
      << "fast steps draw as the trainer's arithmetic does";
  RecordProperty("drafted", static_cast<int>(drafted));
  RecordProperty("kept", static_cast<int>(kept));
  const auto sequences = sequences_of(requests, answers);
  for (const bool shares_prompts : {true, false}) {
    const auto trained =
        trained_log_probs(bench.network(), sequences, run.temperature, shares_prompts);
    int64_t different = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      for (std::size_t t = 0; t < answers[i].output_ids.size(); ++t)
        different += static_cast<float>(answers[i].output_log_probs[t]) !=
                     trained[i][static_cast<int64_t>(t)].item<float>();
    }
    EXPECT_EQ(different, 0) << (shares_prompts ? "prompts shared" : "each by itself");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GpuExactEngine,
    ::testing::Values(
        ExactRun{"tiny", kTiny}, ExactRun{"chunks_of_48", kTiny, 48},
        ExactRun{"three_at_a_time", kTiny, 512, 3}, ExactRun{"one_token_each", kTiny, 512, 32, 1},
        ExactRun{"five_tokens_each", kTiny, 100, 7, 5},
        ExactRun{"temperature", kTiny, 512, 32, 16, 24, 40, 0.7},
        ExactRun{"peaked", kTiny, 512, 32, 16, 24, 40, 0.2}, ExactRun{"biased", kBiased},
        ExactRun{"experts", kExperts}, ExactRun{"experts_in_chunks", kExperts, 48, 7, 5},
        ExactRun{"experts_that_tie", kExperts, 512, 32, 16, 24, 40, 1, true},
        ExactRun{"sigmoid", kSigmoid}, ExactRun{"sigmoid_in_chunks", kSigmoid, 48, 7, 5},
        ExactRun{"sigmoids_that_tie", kSigmoid, 100, 9, 8, 24, 40, 1, true},
        ExactRun{"shared_gate", kSharedGate, 100}, ExactRun{"all_heads", kAllHeads, 100},
        ExactRun{"wide_experts", kWideExperts, 2048}, ExactRun{"small", kSmall, 2048},
        ExactRun{"small_in_chunks", kSmall, 200, 9, 8}),
    [](const auto& info) { return std::string(info.param.name); });

class GpuExactNetworks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SLIME_NEEDS_GPU(); }
};

TEST_P(GpuExactNetworks, ResponsesDoNotDependOnWhatRunsBesideThem) {
  const ExactRun wide{"wide", GetParam()};
  const auto requests = exact_requests_of(wide);
  TestEngine bench(exact_network_of(GetParam()), exact_config_of(wide));
  const auto together = exact_answers_of(bench, requests);
  for (const ExactRun& other :
       {ExactRun{"narrow", GetParam(), 64, 2, 3}, ExactRun{"alone", GetParam(), 33, 1}}) {
    TestEngine again(exact_network_of(GetParam()), exact_config_of(other));
    const auto apart = exact_answers_of(again, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(apart[i].output_ids, together[i].output_ids) << other.name << ", request " << i;
      EXPECT_EQ(apart[i].output_log_probs, together[i].output_log_probs)
          << other.name << ", request " << i;
    }
  }
}

TEST_P(GpuExactNetworks, ScoresOfPromptsAreTheTrainers) {
  const ExactRun run{"scores", GetParam(), 100, 7, 4, 12, 1};
  TestEngine bench(exact_network_of(GetParam()), exact_config_of(run));
  auto requests = exact_requests_of(run);
  std::vector<std::pair<Sequence, Sequence>> sequences;
  for (GenerateRequest& request : requests) {
    request.sampling.max_new_tokens = 0;
    request.logprob_start_len = 0;
    // What a prompt's first token predicts is its response.
    sequences.emplace_back(Sequence{request.input_ids.front()},
                           Sequence(request.input_ids.begin() + 1, request.input_ids.end()));
  }
  const auto answers = exact_answers_of(bench, requests);
  const auto trained = trained_log_probs(bench.network(), sequences, 1, false);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].input_log_probs.size(), requests[i].input_ids.size());
    for (std::size_t p = 1; p < answers[i].input_log_probs.size(); ++p)
      EXPECT_EQ(static_cast<float>(*answers[i].input_log_probs[p]),
                trained[i][static_cast<int64_t>(p) - 1].item<float>())
          << "request " << i << ", position " << p;
  }
}

TEST_P(GpuExactNetworks, TheTrainerGivesASequenceTheSameLogProbsInAnyBatchAndMode) {
  const auto network = exact_network_of(GetParam());
  network->weights().enable_grad();
  network->weights().zero_grad();
  std::mt19937 random(4);
  std::vector<std::pair<Sequence, Sequence>> sequences;
  for (const Sequence& prompt : made_up_prompts(12))
    sequences.emplace_back(prompt, random_tokens(random, 1 + static_cast<int64_t>(random() % 90)));
  const auto together = trained_log_probs(*network, sequences, 1, true);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    EXPECT_TRUE(trained_log_probs(*network, {sequences[i]}, 1, true).front().equal(together[i]));
  using model::Recompute;
  for (const Recompute how : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    network->set_recompute(how);
    const auto again = trained_log_probs(*network, sequences, 1, true, /*has_gradients=*/true);
    for (std::size_t i = 0; i < sequences.size(); ++i)
      EXPECT_TRUE(again[i].equal(together[i])) << "sequence " << i << " of a pass with gradients";
  }
}

std::string name_of_shape(const ::testing::TestParamInfo<const char*>& info) {
  return info.param == kTiny ? "dense" : info.param == kExperts ? "experts" : "sigmoid";
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuExactNetworks, ::testing::Values(kTiny, kExperts, kSigmoid),
                         name_of_shape);

/// With the choices of training arithmetic given to a pass of other runs. A router without a gradient would be all
/// of its norm away; what rounding adds to sums over some hundred rows is a few hundredths.
TEST(GpuExact, GradientsOfExpertsAreThoseOfOtherRuns) {
  SLIME_NEEDS_GPU();
  std::mt19937 random(5);
  std::vector<std::pair<Sequence, Sequence>> sequences;
  int64_t rows = 0;
  for (const Sequence& prompt : made_up_prompts(6)) {
    sequences.emplace_back(prompt, random_tokens(random, 60));
    rows += std::ssize(prompt) + 60;
  }
  for (const char* shape : {kExperts, kSigmoid, kSharedGate}) {
    const auto network = exact_network_of(shape);
    model::Weights& weights = network->weights();
    weights.enable_grad();
    const auto gradients = [&](kernels::Arithmetic arithmetic, model::RouterPass& routers) {
      weights.zero_grad();
      routers.num_rows = rows;
      const at::AutoGradMode grad_mode(true);
      packed_log_probs(*network, sequences, 1, false, arithmetic, &routers);
      return weights.grad().clone();
    };
    model::RouterPass made, given;
    made.made_YTK =
        at::full({network->config().num_layers, rows, network->config().experts.per_token}, -1,
                 at::TensorOptions(at::kShort).device(at::kCUDA));
    const Tensor exact = gradients(kernels::Arithmetic::kTraining, made);
    given.given_YTK = made.made_YTK;
    const Tensor usual = gradients(kernels::Arithmetic::kFast, given);
    int64_t routers = 0;
    for (const model::NamedWeight& weight : weights.tensors()) {
      if (weight.name.find(".mlp.") == std::string::npos) continue;
      const Tensor expected = model::Weights::view(usual, weight);
      const auto norm = expected.norm().item<double>();
      EXPECT_LE((model::Weights::view(exact, weight) - expected).norm().item<double>(), 0.15 * norm)
          << weight.name;
      routers += weight.name.ends_with(".gate.weight") && norm > 0;
    }
    EXPECT_GT(routers, 0);
  }
}

TEST(GpuExact, ArithmeticEndsWithItsScope) {
  SLIME_NEEDS_GPU();
  const auto network = exact_network_of(kTiny);
  const kernels::Device& device = kernels::kernels_for(network->weights().flat());
  EXPECT_EQ(device.arithmetic(), kernels::Arithmetic::kFast);
  {
    const kernels::ArithmeticScope scope(device, kernels::Arithmetic::kTraining);
    EXPECT_EQ(device.arithmetic(), kernels::Arithmetic::kTraining);
  }
  EXPECT_EQ(device.arithmetic(), kernels::Arithmetic::kFast);
}

}  // namespace
}  // namespace slime
