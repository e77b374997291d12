#include "model/layers/rotary_table.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/error.h"

namespace slime::model {
namespace {

/// Llama 3.1's stretching: long waves are slowed by `factor`, short ones kept, a linear blend
/// between (arXiv 2407.21783; constants from config.json).
float stretched(const Rope& rope, float frequency) {
  const double wavelength = 2 * M_PI / frequency;
  const auto original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor)
    return static_cast<float>(frequency / rope.factor);
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
}

}  // namespace

RotaryTable make_rotary_table(const Rope& rope, int64_t rotary_dim, int64_t head_dim,
                              int64_t max_positions, at::Device device) {
  check(rotary_dim >= 2 && rotary_dim <= head_dim, "a part of each head rotates");
  const int64_t half = rotary_dim / 2, rest = (head_dim - rotary_dim) / 2;
  Tensor frequency_R = at::zeros({half + rest}, at::kFloat);
  auto frequency = frequency_R.accessor<float, 1>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    frequency[i] = 1.0F / static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    if (rope.kind == Rope::Kind::kLinear)
      frequency[i] = static_cast<float>(frequency[i] / rope.factor);
    if (rope.kind == Rope::Kind::kLlama3) frequency[i] = stretched(rope, frequency[i]);
  }
  const Tensor angle_PR = at::outer(at::arange(max_positions, at::kFloat), frequency_R);
  RotaryTable table{angle_PR.cos().to(device), angle_PR.sin().to(device), {}};
  if (rest > 0) {
    const auto range = [](int64_t begin, int64_t end) { return at::arange(begin, end, at::kLong); };
    table.head_order_D = at::cat({range(0, half), range(rotary_dim, rotary_dim + rest),
                                  range(half, rotary_dim), range(rotary_dim + rest, head_dim)})
                             .to(device);
  }
  return table;
}

}  // namespace slime::model
