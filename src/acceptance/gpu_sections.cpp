#include "acceptance/gpu_sections.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "acceptance/engine_steps.h"
#include "acceptance/kernel_twins.h"
#include "acceptance/tiny_model.h"
#include "core/random.h"
#include "kernels/cpu/sample.h"
#include "kernels/gpu/rocm.h"
#include "kernels/gpu/self_tests.h"
#include "model/network.h"

namespace slime::acceptance {
namespace {

constexpr double kGibibyte = 1 << 30;

struct Draw {
  kernels::SampleOptions options;
  std::vector<float> logits;
};

/// Temperatures, greedy rows and cuts, of logits that have a clear order.
std::vector<Draw> draws_of(int64_t vocabulary) {
  std::vector<Draw> draws;
  for (uint64_t i = 0; i < 24; ++i) {
    kernels::SampleOptions options;
    options.temperature = i % 3 == 0 ? 0.5 : i % 3 == 1 ? 1.0 : 2.0;
    options.greedy = i % 8 == 7;
    options.uniform = uniform(11, i, 3);
    if (i % 4 == 1) options.top_k = 20;
    if (i % 4 == 2) options.top_p = 0.8;
    std::vector<float> logits;
    for (int64_t v = 0; v < vocabulary; ++v)
      logits.push_back(static_cast<float>(5 * normal(7, i, static_cast<uint64_t>(v))));
    draws.push_back({options, std::move(logits)});
  }
  return draws;
}

template <typename T>
Tensor column(const std::vector<Draw>& draws, at::ScalarType type, at::Device place,
              const std::function<T(const kernels::SampleOptions&)>& of) {
  std::vector<T> values;
  for (const Draw& draw : draws) values.push_back(of(draw.options));
  return at::tensor(values, at::TensorOptions(type)).to(place);
}

void compare_draws(const Comparison& beside, int64_t vocabulary) {
  using Options = kernels::SampleOptions;
  const std::string what = fmt::format("sample 24 x {}", vocabulary);
  beside.attempt(what, [&] {
    const std::vector<Draw> draws = draws_of(vocabulary);
    const at::Device place = beside.side().place;
    const auto rows = static_cast<int64_t>(draws.size());
    std::vector<float> logits;
    for (const Draw& draw : draws)
      logits.insert(logits.end(), draw.logits.begin(), draw.logits.end());
    const kernels::SampleRows parameters{
        column<double>(draws, at::kDouble, place, [](const Options& o) { return o.uniform; }),
        column<float>(draws, at::kFloat, place,
                      [](const Options& o) { return static_cast<float>(o.temperature); }),
        column<float>(draws, at::kFloat, place,
                      [](const Options& o) { return static_cast<float>(o.top_p); }),
        column<float>(draws, at::kFloat, place,
                      [](const Options& o) { return static_cast<float>(o.min_p); }),
        column<int32_t>(
            draws, at::kInt, place,
            [](const Options& o) { return o.greedy ? 0 : static_cast<int32_t>(o.top_k); }),
        {}};
    const Tensor token_R = at::full({rows}, -7, at::TensorOptions(at::kInt).device(place));
    const Tensor log_prob_R = at::full({rows}, 7, at::TensorOptions(at::kFloat).device(place));
    kernels::opened_gpu().sample(at::tensor(logits).view({rows, vocabulary}).to(place), parameters,
                                 {token_R, log_prob_R, {}});
    const Tensor drawn = token_R.cpu(), drawn_log_prob = log_prob_R.cpu();
    std::vector<int32_t> tokens;
    std::vector<float> log_probs;
    for (const Draw& draw : draws) {
      const kernels::SampledToken expected = kernels::sample_row(draw.logits, draw.options);
      tokens.push_back(expected.id);
      log_probs.push_back(expected.log_prob);
    }
    beside.same(what + ", tokens", drawn, at::tensor(tokens, at::TensorOptions(at::kInt)));
    beside.near(what + ", log-probs", drawn_log_prob, at::tensor(log_probs), 1e-5);
  });
}

void compare_recorded_steps(const Comparison& beside, const TinyShape& shape) {
  const std::string what =
      fmt::format("engine with heads of {}, answers that differ", shape.head_dim);
  beside.attempt(what, [&] {
    const auto network =
        model::make_network(model::parse_model_config(tiny_config(shape), "config"),
                            model::Precision::on_gpu("bfloat16"), /*seed=*/1);
    const int64_t new_tokens = beside.side().is_quick ? 24 : 200;
    const auto eager = greedy_answers(*network, false, 12, new_tokens);
    const auto recorded = greedy_answers(*network, true, 12, new_tokens);
    beside.none(what, answers_that_differ(eager, recorded));
  });
}

}  // namespace

void compare_sampling(const Side& side, const Tell& tell) {
  const Comparison beside("sampling", side, tell);
  for (const int64_t vocabulary : {384, 20011}) compare_draws(beside, vocabulary);
  if (!side.is_quick) compare_draws(beside, 151936);
}

void compare_recordings(const Side& side, kernels::Gpu& gpu, const Tell& tell) {
  const Comparison beside("graphs", side, tell);
  const int rounds = side.is_quick ? 5 : 200;
  const std::string what = fmt::format("chain of kernels, {} replays, bytes that differ", rounds);
  beside.attempt(what, [&] {
    const auto record = [&gpu](const std::function<void()>& body) {
      return gpu.record(body, nullptr, kernels::GraphLaunch::kWhole);
    };
    beside.none(what, kernels::replay_differences(side.device, side.place, record, rounds));
  });
  compare_recorded_steps(beside, {});
  compare_recorded_steps(beside, {.heads = 8, .kv_heads = 2, .head_dim = 128});
}

void check_returned_memory(const Side& side, kernels::Gpu& gpu, const Tell& tell) {
  const Comparison beside("memory", side, tell);
  gpu.release_unused_memory();
  // Several pieces of the driver's memory (kernels/cuda/virtual_memory.cpp), with a ragged end.
  const int64_t wanted =
      side.is_quick ? int64_t{64} << 20 : (int64_t{7} << 29) + (int64_t{6} << 20);
  const int64_t bytes = std::min(wanted, gpu.free_bytes() / 2);
  const int rounds = side.is_quick ? 3 : 20;
  beside.attempt("unmapped memory", [&] {
    const kernels::ReturnedMemory found = kernels::returned_memory(gpu, bytes, rounds);
    const auto asked = static_cast<double>(found.asked);
    const auto told = [&](const char* what, double value, double most) {
      tell({.section = "memory", .what = what, .value = value, .most = most});
    };
    beside.told("mapped and unmapped",
                fmt::format("{:.2f} GiB, {} times", asked / kGibibyte, rounds));
    told("share of unmapped memory that did not come back, worst round",
         1 - static_cast<double>(found.least_return) / asked, 0.1);
    told("share of it that is missing at the end",
         std::max(0.0, static_cast<double>(found.lost) / asked), 0.1);
    told("bytes that were read otherwise than they were written",
         static_cast<double>(found.wrong_bytes), 0);
  });
  beside.attempt("freed tensors", [&] {
    const int64_t before = gpu.memory_use().free;
    at::empty({bytes}, at::TensorOptions(at::kByte).device(side.place)).fill_(1);
    gpu.release_unused_memory();
    tell({.section = "memory",
          .what = "share of a freed tensor that did not come back",
          .value = std::max(0.0, static_cast<double>(before - gpu.memory_use().free) /
                                     static_cast<double>(bytes)),
          .most = 0.1});
  });
}

void describe_gpu(const kernels::Gpu& gpu, const Tell& tell) {
  const kernels::GpuMemoryUse use = gpu.memory_use();
  const auto told = [&](const char* what, std::string text) {
    tell({.section = "device", .what = what, .kind = Figure::Kind::kTold, .text = std::move(text)});
  };
  told("device", gpu.description());
  if (kernels::gpu_platform() == kernels::GpuPlatform::kHip) {
    const kernels::Rocm rocm = kernels::probe_rocm();
    told("GPUs of the driver", fmt::format("{}", fmt::join(rocm.gfx, ", ")));
    told("ROCm",
         fmt::format("{}, {}", rocm.version.empty() ? "unknown" : rocm.version, rocm.runtime));
  }
  for (const std::string& sentence : kernels::gpu_abilities().lost)
    tell({.section = "device",
          .what = "self-test at the start",
          .kind = Figure::Kind::kProblem,
          .text = sentence});
  told("memory", fmt::format("{:.1f} GiB, {:.1f} free", static_cast<double>(use.total) / kGibibyte,
                             static_cast<double>(use.free) / kGibibyte));
}

}  // namespace slime::acceptance
