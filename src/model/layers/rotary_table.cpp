#include "model/layers/rotary_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"

namespace slime::model {
namespace {

// Each kind in float32 and in the order of transformers: at long positions the last bit shows.

/// Llama 3.1's stretching: long waves are slowed by `factor`, short ones kept, a linear blend
/// between (arXiv 2407.21783; constants from config.json).
float stretched(const Rope& rope, float frequency) {
  const auto narrow = [](double number) { return static_cast<float>(number); };
  const float wavelength = narrow(2 * M_PI) / frequency;
  const auto original = static_cast<double>(rope.original_max_positions);
  if (wavelength < narrow(original / rope.high_freq_factor)) return frequency;
  const float slow = frequency / narrow(rope.factor);
  if (wavelength > narrow(original / rope.low_freq_factor)) return slow;
  const float smooth = (narrow(original) / wavelength - narrow(rope.low_freq_factor)) /
                       narrow(rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / narrow(rope.factor) + smooth * frequency;
}

/// The dimension that turns `rotations` times in the original context.
double turning_dimension(const Rope& rope, int64_t rotary_dim, double rotations) {
  const auto original = static_cast<double>(rope.original_max_positions);
  return static_cast<double>(rotary_dim) * std::log(original / (rotations * 2 * M_PI)) /
         (2 * std::log(rope.theta));
}

/// YaRN (arXiv 2309.00071, section 3.2): dimensions that turn often keep their frequency, those
/// that turn seldom are interpolated, a ramp between.
float blended(const Rope& rope, int64_t rotary_dim, int64_t i, float wave) {
  double low = turning_dimension(rope, rotary_dim, rope.beta_fast),
         high = turning_dimension(rope, rotary_dim, rope.beta_slow);
  if (rope.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  const float ramp =
      std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low),
                 0.0F, 1.0F);
  const float kept = 1 - ramp;
  return 1.0F / (static_cast<float>(rope.factor) * wave) * (1 - kept) + 1.0F / wave * kept;
}

/// LongRoPE (arXiv 2402.13753): a factor of its own for each frequency.
float divided(const std::vector<double>& factors, int64_t i, float wave) {
  return 1.0F / (static_cast<float>(factors[static_cast<std::size_t>(i)]) * wave);
}

float frequency_of(const Rope& rope, int64_t rotary_dim, int64_t i, bool is_long) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
  const float wave = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
  const float plain = 1.0F / wave;
  switch (rope.kind) {
    case Rope::Kind::kDefault:
    case Rope::Kind::kDynamic:
      return plain;
    case Rope::Kind::kLinear:
      return plain / static_cast<float>(rope.factor);
    case Rope::Kind::kLlama3:
      return stretched(rope, plain);
    case Rope::Kind::kYarn:
      return blended(rope, rotary_dim, i, wave);
    case Rope::Kind::kLongrope:
      return divided(is_long ? rope.long_factors : rope.short_factors, i, wave);
  }
  throw BugError("a kind of rope");
}

/// What sines and cosines are multiplied by.
double amplitude(const Rope& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.kind == Rope::Kind::kLongrope) {
    const auto original = static_cast<double>(rope.original_max_positions);
    return rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  }
  if (rope.kind != Rope::Kind::kYarn) return 1;
  if (rope.mscale > 0 && rope.mscale_all_dim > 0)
    return yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim);
  return yarn_mscale(rope.factor, 1);
}

/// The numbers of a head as files have them, in the order of RotaryTable::head_order_D.
Tensor head_order(const RotaryHead& head) {
  const int64_t half = head.rotary_dim / 2, rest = head.head_dim / 2 - half,
                step = head.rotates_pairs ? 2 : 1;
  std::vector<int64_t> order;
  for (int64_t side = 0; side < 2; ++side) {
    const int64_t first = side * (head.rotates_pairs ? 1 : half);
    for (int64_t i = 0; i < half; ++i) order.push_back(first + i * step);
    for (int64_t i = 0; i < rest; ++i) order.push_back(head.rotary_dim + side * rest + i);
  }
  return at::tensor(order, at::kLong);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

namespace {

/// Cosines and sines of the positions, at one end of a rope with a switch.
std::pair<Tensor, Tensor> waves(const Rope& rope, const RotaryHead& head, int64_t max_positions,
                                bool is_long) {
  const int64_t half = head.rotary_dim / 2;
  Tensor frequency_R = at::zeros({head.head_dim / 2}, at::kFloat);
  for (int64_t i = 0; i < half; ++i)
    frequency_R.data_ptr<float>()[i] = frequency_of(rope, head.rotary_dim, i, is_long);
  const Tensor angle_PR = at::outer(at::arange(max_positions, at::kFloat), frequency_R);
  Tensor cos_PR = angle_PR.cos(), sin_PR = angle_PR.sin();
  if (const double factor = amplitude(rope); factor != 1) {
    cos_PR.narrow(1, 0, half).mul_(factor);
    sin_PR.narrow(1, 0, half).mul_(factor);
  }
  return {cos_PR, sin_PR};
}

}  // namespace

RotaryTable make_rotary_table(const Rope& rope, const RotaryHead& head, int64_t max_positions,
                              bool has_switch, at::Device device) {
  check(head.rotary_dim >= 2 && head.rotary_dim <= head.head_dim, "a part of each head rotates");
  auto [cos_PR, sin_PR] = waves(rope, head, max_positions, /*is_long=*/false);
  if (has_switch) {
    const auto [long_cos_PR, long_sin_PR] = waves(rope, head, max_positions, /*is_long=*/true);
    cos_PR = at::cat({cos_PR, long_cos_PR});
    sin_PR = at::cat({sin_PR, long_sin_PR});
  }
  RotaryTable table{cos_PR.to(device), sin_PR.to(device), {}};
  if (head.rotary_dim < head.head_dim || head.rotates_pairs)
    table.head_order_D = head_order(head).to(device);
  return table;
}

}  // namespace slime::model
