#include "bench/machine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "core/best_seconds.h"
#include "core/error.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace slime::bench {
namespace {

double read_bytes_per_second() {
  constexpr int64_t kWords = int64_t{1} << 26;  // 512 MiB
  constexpr int64_t kBlock = int64_t{1} << 15;
  constexpr int64_t kAhead = 512;  // 4 KiB; the hardware's own prefetching stops at small pages
  const Tensor memory = at::ones({kWords}, at::kLong);
  const int64_t* words = memory.const_data_ptr<int64_t>();
  std::vector<int64_t> sums(kWords / kBlock);
  const double seconds = best_seconds(5, [&] {
    kernels::cpu::parallel_chunks(kWords / kBlock, [&](int64_t block) {
      const int64_t* from = words + block * kBlock;
      int64_t sum[8] = {};
      for (int64_t i = 0; i < kBlock; i += 8) {
        __builtin_prefetch(from + i + kAhead, 0, 2);
        for (int64_t lane = 0; lane < 8; ++lane) sum[lane] += from[i + lane];
      }
      sums[static_cast<size_t>(block)] =
          std::accumulate(std::begin(sum), std::end(sum), int64_t{0});
    });
  });
  check(sums.front() == kBlock, "all words were read");
  return static_cast<double>(kWords * 8) / seconds;
}

double flops_per_second(at::ScalarType weights, at::ScalarType activations) {
  constexpr int64_t kSize = 1536;
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({kSize, kSize}).to(activations);
  const kernels::Param weight{at::randn({kSize, kSize}).to(weights), {}};
  const Tensor transposed = weight.value.to(activations).t();
  const double ours = best_seconds(5, [&] { kernels::linear(x, weight); });
  const int before = at::get_num_threads();
  at::set_num_threads(kernels::cpu::num_threads());
  const double theirs = best_seconds(5, [&] { at::mm(x, transposed); });
  at::set_num_threads(before);
  return 2.0 * kSize * kSize * kSize / std::min(ours, theirs);
}

}  // namespace

std::unique_ptr<model::Network> ModelOptions::load() const {
  if (threads > 0) at::set_num_threads(threads);
  const auto precision = model::Precision::of(dtype);
  if (random_weights)
    return model::make_network(model::read_model_config(directory), precision, /*seed=*/1);
  return model::load_network(directory, precision);
}

MachineRates measure_machine(model::Network& network) {
  const auto weights = network.weights().flat().scalar_type();
  const auto activations =
      weights == at::kBFloat16 ? model::Precision::of("bfloat16").activations : at::kFloat;
  return {read_bytes_per_second(), flops_per_second(weights, activations)};
}

json::object to_json(const MachineRates& rates) {
  return {{"memory_gb_per_second", rates.read_bytes_per_second * 1e-9},
          {"product_gflop_per_second", rates.flops_per_second * 1e-9}};
}

}  // namespace slime::bench
