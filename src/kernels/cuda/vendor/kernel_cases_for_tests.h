#pragma once

/// Kernels that the block executor runs: what each is compared with, and the mistakes that its comparison must find.
///
/// A file of cases has the kernels of a folder. Inputs are drawn anew at each call, so that what an earlier run left in
/// shared memory is of no use to a later one that lacks a barrier.
///
/// Files that include this define SLIME_KERNELS_ON_CPU first.

#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/block_executor/block_executor.h"
#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

struct KernelCase {
  std::string file;  // as cmake/portable_kernels.cmake names it
  std::string what;  // a name of a test: letters
  /// The largest error of a run, in units of what is allowed: up to 1 the kernel is right.
  std::function<double(BlockExecutor&)> error;
  /// Of the executor; with each of them error() is above 1.
  std::vector<BlockExecutor::Options> mistakes;

  friend void PrintTo(const KernelCase& one, std::ostream* to) { *to << one.file; }
};

std::vector<KernelCase> attention_cases();
std::vector<KernelCase> decode_cases();
std::vector<KernelCase> delta_cases();
std::vector<KernelCase> expert_cases();
std::vector<KernelCase> fp8_cases();
std::vector<KernelCase> latent_cases();
std::vector<KernelCase> product_cases();
std::vector<KernelCase> sparse_cases();
std::vector<KernelCase> training_cases();

// The mistakes of most cases.

/// A shuffle over this distance that reaches half as far.
inline BlockExecutor::Options exchange_mistake(unsigned distance) {
  return {.wave_lanes = 64, .mistaken_distance = distance};
}
/// A shuffle from this lane that reads its neighbour instead.
inline BlockExecutor::Options lane_mistake(int lane) {
  return {.wave_lanes = 64, .mistaken_lane = lane};
}
inline BlockExecutor::Options barrier_mistake() { return {.passes_barriers = true}; }
inline BlockExecutor::Options absent_thread(int index) { return {.absent_thread = index}; }

inline Number to_number(at::ScalarType type) {
  return type == at::kFloat      ? Number::kFloat32
         : type == at::kBFloat16 ? Number::kBFloat16
                                 : Number::kFloat16;
}

/// The largest difference as a share of the largest number, in units of `bound`; infinite where a number is none.
inline double error_of(const Tensor& made, const Tensor& exact, double bound) {
  const Tensor x = made.to(at::kDouble), y = exact.to(at::kDouble);
  const double worst = (x - y).abs().max().item<double>() / y.abs().max().item<double>() / bound;
  return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
}
/// 0 or infinite.
inline double error_of_bits(const Tensor& made, const Tensor& exact) {
  const auto bits = [](const Tensor& x) { return x.contiguous().view(at::kByte); };
  return at::equal(bits(made), bits(exact)) ? 0 : std::numeric_limits<double>::infinity();
}

/// One rounding to the precision, and one more of a number on the way.
inline double rounding_bound(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;
}

inline Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::TensorOptions(at::kFloat)).to(type);
}
/// Results are no numbers before they are written.
inline Tensor unwritten(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::full(sizes, NAN, at::TensorOptions(at::kFloat)).to(type);
}

}  // namespace slime::kernels::cuda
