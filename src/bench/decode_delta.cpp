/// The gated delta rule of one layer in the engine on the GPU: states advanced by a token of each
/// sequence, or by a prompt, against the speed of memory (a state is read and written once).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "bench/flags.h"
#include "bench/harness.h"
#include "core/json_lines.h"
#include "kernels/gated_delta.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"

namespace slime::bench {
namespace {

struct DecodeDeltaOptions {
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  int64_t tokens = 1;                           // of each sequence
  kernels::DeltaShape shape{16, 32, 128, 128};  // Qwen3-Next's
  int64_t taps = 4;
};

constexpr double kColdStateBytes = 4e9;  // states of all layers together: many times the L2 cache

void measure_states(const DecodeDeltaOptions& options, int64_t batch,
                    double copy_bytes_per_second) {
  kernels::Gpu& gpu = kernels::open_gpu();
  const kernels::DeltaShape& shape = options.shape;
  const int64_t rows = batch * options.tokens;
  std::vector<int32_t> starts, sequence_of_row, places(static_cast<size_t>(batch));
  for (int64_t s = 0; s <= batch; ++s) starts.push_back(static_cast<int32_t>(s * options.tokens));
  for (int64_t row = 0; row < rows; ++row)
    sequence_of_row.push_back(static_cast<int32_t>(row / options.tokens));
  std::iota(places.begin(), places.end(), 0);
  const auto numbers = [](const std::vector<int32_t>& list) {
    return at::tensor(list, at::kInt).to(at::kCUDA);
  };
  kernels::PagedBatch paged;
  paged.query_starts = numbers(starts);
  paged.row_sequence_T = numbers(sequence_of_row);
  paged.state_S = numbers(places);

  const int64_t state = (options.taps - 1) * shape.channels() + shape.state();
  const double state_bytes = static_cast<double>(batch * state) * sizeof(float);
  const auto layers =
      std::clamp<int64_t>(static_cast<int64_t>(kColdStateBytes / state_bytes), 2, 64);
  const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const Tensor states_LPX = at::zeros({layers, batch, state}, floats);
  kernels::DeltaCall call;
  call.batch = &paged;
  call.in.mixed_TE = at::randn({rows, shape.channels()}, floats).to(at::kBFloat16);
  call.in.decay_TN = at::rand({rows, shape.value_heads}, floats).mul_(-0.1);
  call.in.rate_TN = at::rand({rows, shape.value_heads}, floats);
  call.shape = shape;
  call.taps = options.taps;
  call.conv = at::randn({shape.channels(), 1, options.taps}, floats).to(at::kBFloat16);
  const double seconds = recorded_seconds(static_cast<int>(layers), [&](int layer) {
    call.states_PX = states_LPX[layer];
    gpu.paged_delta(call);
  });
  const double bytes = 2 * state_bytes;
  write_json_line({{"measurement", "decode-delta"},
                   {"batch", batch},
                   {"tokens", options.tokens},
                   {"microseconds", seconds * 1e6},
                   {"tb_per_second", bytes / seconds * 1e-12},
                   {"fraction_of_copy", bytes / seconds / copy_bytes_per_second}});
}

void measure_decode_delta(const DecodeDeltaOptions& options) {
  const at::NoGradGuard no_grad;
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  for (const int64_t batch : options.batches) {
    measure_states(options, batch, limits.copy_bytes_per_second);
    kernels::opened_gpu().release_unused_memory();
  }
}

}  // namespace

int decode_delta(const std::string& name, Arguments arguments) {
  DecodeDeltaOptions options;
  Flags flags("The gated delta rule of one layer of Qwen3-Next in a step on the GPU.", name);
  flags.list("--batch", options.batches, "Sequences of a step");
  flags.count("--tokens", options.tokens, "Tokens of each sequence");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_decode_delta(options);
  return 0;
}

}  // namespace slime::bench
