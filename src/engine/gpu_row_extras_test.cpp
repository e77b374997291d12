/// Draws of the GPU from given logits, beside the engine's sampler on the CPU: logits changed bit
/// for bit, tokens the same, counts that go on by themselves.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "core/random.h"
#include "engine/gpu_row_extras.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"
#include "kernels/gpu/for_tests.h"

namespace slime::engine {
namespace {

constexpr int64_t kVocab = 9000;  // three chunks
const std::vector<TokenId> kEosIds{5, 4100};

std::unique_ptr<Request> running(GenerateRequest client, int ordinal) {
  auto request = std::make_unique<Request>();
  request->client = std::move(client);
  request->client.sampling.max_new_tokens = 100;
  request->stream = 1 + ordinal;
  request->tokens = {1, 2, 3, 4};
  request->prompt_length = 4;
  request->num_computed = 3;
  request->max_tokens = 104;
  return request;
}

std::vector<std::unique_ptr<Request>> all_extras() {
  std::vector<GenerateRequest> clients(16);
  clients[1].sampling.frequency_penalty = 0.37;
  clients[2].sampling.presence_penalty = 1.1;
  clients[3].sampling.repetition_penalty = 1.7;
  clients[4].sampling.repetition_penalty = 0.6;
  clients[4].sampling.frequency_penalty = -1.3;
  clients[4].sampling.presence_penalty = 0.21;
  clients[5].sampling.logit_bias = {{8999, 3.1}, {7, -1e30}, {7, 1e30}, {12, 0.1}, {8999, 0.7}};
  clients[6].sampling.min_new_tokens = 4;
  clients[6].sampling.stop_token_ids = {17, 8000, kVocab + 3};
  clients[7].sampling.min_new_tokens = 3;
  clients[7].sampling.ignore_eos = true;
  clients[7].sampling.temperature = 0;
  clients[8].top_logprobs_num = 20;
  clients[8].sampling.frequency_penalty = 2;
  clients[9].return_top_p_token_ids = true;
  clients[9].return_top_p_log_probs = true;
  clients[9].sampling.top_p = 0.7;
  clients[9].sampling.logit_bias = {{4100, 9.0}};
  clients[10].return_top_p_token_ids = true;
  clients[10].return_top_p_log_probs = true;
  clients[10].sampling.top_k = 30;
  clients[10].top_logprobs_num = 2;
  clients[11].return_top_p_token_ids = true;  // nothing is truncated
  clients[13].sampling.frequency_penalty = 0.8;
  clients[13].sampling.top_p = 0.9;
  clients[13].return_top_p_token_ids = true;
  clients[12].return_free_logprobs = true;
  clients[14].return_free_logprobs = true;
  clients[14].sampling.frequency_penalty = 0.8;
  clients[14].sampling.temperature = 0.7;
  clients[14].top_logprobs_num = 3;
  clients[15].return_free_logprobs = true;
  clients[15].sampling.temperature = 0;
  std::vector<std::unique_ptr<Request>> requests;
  for (auto& client : clients)
    requests.push_back(running(std::move(client), static_cast<int>(requests.size())));
  // Constraints: every third id, and three ids of which two are likely.
  for (const int row : {12, 13, 14, 15}) requests[row]->allowed_W.assign(mask_words(kVocab), 0);
  for (const int row : {12, 14})
    for (int64_t id = 0; id < kVocab; id += 3) requests[row]->allowed_W[id / 32] |= 1U << (id % 32);
  for (const int row : {13, 15})
    for (const TokenId id : {8, 17, 8999}) requests[row]->allowed_W[id / 32] |= 1U << (id % 32);
  return requests;
}

/// Few tokens are likely, so that they come again.
Tensor logits_of_step(int64_t rows, int step) {
  Tensor logits_RV = at::empty({rows, kVocab});
  float* logits = logits_RV.data_ptr<float>();
  for (int64_t i = 0; i < rows * kVocab; ++i)
    logits[i] = static_cast<float>(2 * normal(3, step, i));
  for (int64_t row = 0; row < rows; ++row)
    for (const TokenId likely : {5, 7, 17, 4100, 8000, 8999}) logits[row * kVocab + likely] += 9;
  return logits_RV;
}

std::vector<kernels::SampledToken> draw_on_cpu(
    const std::vector<std::unique_ptr<Request>>& requests, const Tensor& logits_RV) {
  std::vector<SampleJob> jobs;
  for (std::size_t row = 0; row < requests.size(); ++row)
    jobs.push_back({.request = requests[row].get(),
                    .position = static_cast<int64_t>(requests[row]->tokens.size()),
                    .logits_V = {logits_RV.data_ptr<float>() + static_cast<int64_t>(row) * kVocab,
                                 static_cast<std::size_t>(kVocab)}});
  sample(jobs, kEosIds);
  std::vector<kernels::SampledToken> tokens;
  for (auto& job : jobs) tokens.push_back(std::move(job.token));
  return tokens;
}

/// As GpuInputBlock does it.
kernels::SampleRows parameters_of(const std::vector<std::unique_ptr<Request>>& requests,
                                  std::span<const kernels::RowExtras> extras) {
  std::vector<double> uniforms;
  std::vector<float> temperatures, top_ps, min_ps;
  std::vector<int32_t> top_ks;
  for (const auto& request : requests) {
    const kernels::SampleOptions options = sample_options(*request);
    uniforms.push_back(options.uniform);
    temperatures.push_back(static_cast<float>(options.temperature));
    top_ps.push_back(static_cast<float>(options.top_p));
    min_ps.push_back(static_cast<float>(options.min_p));
    top_ks.push_back(options.greedy ? 0 : static_cast<int32_t>(options.top_k));
  }
  const auto on_gpu = [](const auto& list, at::ScalarType type) {
    return at::tensor(list, at::TensorOptions(type)).to(at::kCUDA);
  };
  kernels::SampleRows rows{on_gpu(uniforms, at::kDouble), on_gpu(temperatures, at::kFloat),
                           on_gpu(top_ps, at::kFloat),    on_gpu(min_ps, at::kFloat),
                           on_gpu(top_ks, at::kInt),      {}};
  const auto bytes = static_cast<int64_t>(extras.size_bytes());
  if (bytes > 0) {
    Tensor host = at::empty({bytes}, at::TensorOptions(at::kByte));
    std::memcpy(host.data_ptr(), extras.data(), extras.size_bytes());
    rows.extras_R = host.to(at::kCUDA);
  }
  return rows;
}

TEST(GpuRowExtras, ChangeLogitsAndReportAsTheCpuDoesStepByStep) {
  SLIME_NEEDS_GPU();
  const auto requests = all_extras();
  const auto rows = static_cast<int64_t>(requests.size());
  GpuRowExtras extras(kEosIds, kVocab, at::Device(at::kCUDA, 0));
  int64_t num_repeated = 0;
  for (int step = 0; step < 12; ++step) {
    const Tensor logits_RV = logits_of_step(rows, step);
    const Tensor on_gpu = logits_RV.to(at::kCUDA);
    std::vector<Chunk> chunks;
    for (const auto& request : requests) chunks.push_back({request.get(), 1});
    std::vector<RowReport> reports;
    const auto planned = extras.plan(chunks, step % 2, reports);
    ASSERT_EQ(planned.size(), requests.size());
    EXPECT_EQ(reports.size(), 7U);
    const auto integers = at::TensorOptions(at::kInt).device(at::kCUDA);
    const kernels::SampledRows sampled{at::empty({rows}, integers),
                                       at::empty({rows}, integers.dtype(at::kFloat)),
                                       at::empty({rows}, integers)};
    kernels::opened_gpu().sample(on_gpu, parameters_of(requests, planned), sampled);
    const Tensor ids = sampled.token_R.to(at::kCPU), log_probs = sampled.log_prob_R.to(at::kCPU),
                 num_kept = sampled.num_kept_R.to(at::kCPU);
    std::vector<kernels::SampledToken> tokens(requests.size());
    for (int64_t row = 0; row < rows; ++row) {
      tokens[row].id = ids[row].item<int32_t>();
      tokens[row].log_prob = log_probs[row].item<float>();
    }
    for (const auto& report : reports)
      extras.read(report, step % 2, num_kept[report.chunk].item<int32_t>(), tokens[report.chunk]);

    const auto expected = draw_on_cpu(requests, logits_RV);
    EXPECT_TRUE(at::equal(on_gpu.to(at::kCPU), logits_RV)) << "step " << step;
    for (std::size_t row = 0; row < requests.size(); ++row) {
      const std::string where = "step " + std::to_string(step) + ", row " + std::to_string(row);
      EXPECT_EQ(tokens[row].id, expected[row].id) << where;
      EXPECT_NEAR(tokens[row].log_prob, expected[row].log_prob, 4e-6) << where;
      EXPECT_EQ(tokens[row].kept_ids, expected[row].kept_ids) << where;
      ASSERT_EQ(tokens[row].kept_log_probs.size(), expected[row].kept_log_probs.size()) << where;
      for (std::size_t i = 0; i < tokens[row].kept_log_probs.size(); ++i)
        EXPECT_NEAR(tokens[row].kept_log_probs[i], expected[row].kept_log_probs[i], 4e-6) << where;
      if (requests[row]->client.return_free_logprobs) {  // of two sums more
        EXPECT_NEAR(tokens[row].free_log_prob, expected[row].free_log_prob, 1.2e-5) << where;
        EXPECT_LT(tokens[row].free_log_prob, tokens[row].log_prob) << where;
      }
      ASSERT_EQ(tokens[row].top.size(), expected[row].top.size()) << where;
      for (std::size_t i = 0; i < tokens[row].top.size(); ++i) {
        EXPECT_EQ(tokens[row].top[i].second, expected[row].top[i].second) << where;
        EXPECT_NEAR(tokens[row].top[i].first, expected[row].top[i].first, 4e-6) << where;
      }
      Request& request = *requests[row];
      request.tokens.push_back(expected[row].id);
      ++request.num_computed;
      if (has_penalties(request.client.sampling))
        num_repeated += request.output_counts[expected[row].id]++ > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(num_repeated, 5);
}

TEST(GpuRowExtras, AreNoneInAPlainBatch) {
  SLIME_NEEDS_GPU();
  std::vector<std::unique_ptr<Request>> requests;
  requests.push_back(running({}, 0));
  GenerateRequest was_short;
  was_short.sampling.min_new_tokens = 1;
  requests.push_back(running(was_short, 1));
  requests.back()->tokens.push_back(9);
  ++requests.back()->num_computed;
  GpuRowExtras extras(kEosIds, kVocab, at::Device(at::kCUDA, 0));
  std::vector<Chunk> chunks;
  for (const auto& request : requests) chunks.push_back({request.get(), 1});
  std::vector<RowReport> reports;
  EXPECT_TRUE(extras.plan(chunks, 0, reports).empty());
  EXPECT_TRUE(reports.empty());
}

}  // namespace
}  // namespace slime::engine
