#include "kernels/cpu/delta_step.h"

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "kernels/cpu/delta_step_passes.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels {
namespace {

using namespace cpu;  // NOLINT: the loops' arithmetic

#include "kernels/cpu/delta_step_loops.h"

constexpr DeltaStepPasses kPortable{convolve, scale_to_length, advance};

/// The longest value that a head writes at once.
constexpr int64_t kMostValues = 1024;

void run(const DeltaStep& step, const DeltaStepPasses& passes) {
  const DeltaShape& shape = step.shape;
  const int64_t channels = shape.channels(), key = shape.key_dim, value = shape.value_dim,
                heads = shape.value_heads, share = heads / shape.key_heads;
  check(value <= kMostValues, "values of a head are at most 1024 numbers");
  const auto count = static_cast<int64_t>(step.states.size());
  const float query_length = 1 / std::sqrt(static_cast<float>(key));
  parallel_chunks(count, [&](int64_t s) {
    float* mixed_E = step.scratch_SE + s * channels;
    passes.convolve(step.tap_JE, step.mixed_SE + s * channels, step.states[s], mixed_E, step.taps,
                    channels);
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      passes.scale_to_length(mixed_E + head * key, key, query_length);
      passes.scale_to_length(mixed_E + shape.keys() + head * key, key, 1);
    }
  });
  const int64_t before_heads = (step.taps - 1) * channels;
  parallel_chunks(count * heads, [&](int64_t chunk) {
    const int64_t s = chunk / heads, head = chunk % heads;
    const float* mixed_E = step.scratch_SE + s * channels;
    float written[kMostValues];
    passes.advance(step.states[s] + before_heads + head * key * value, mixed_E + head / share * key,
                   mixed_E + shape.keys() + head / share * key,
                   mixed_E + 2 * shape.keys() + head * value, std::exp(step.decay_SN[chunk]),
                   step.rate_SN[chunk], written, step.out_SC + chunk * value, key, value);
  });
}

}  // namespace

void delta_step(const DeltaStep& step) {
  run(step, has_avx2() ? delta_step_passes_avx2() : kPortable);
}

void delta_step_portable(const DeltaStep& step) { run(step, kPortable); }

}  // namespace slime::kernels
