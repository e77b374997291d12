// Products of decode steps of 65 to 256 rows (kernels/cuda/products/wide_product.h) by themselves,
// against plain loops. A program of its own for compute-sanitizer: in the fused path cuBLAS runs
// beside them, and racecheck breaks down inside it. It needs nothing but the driver: the CUDA
// runtime is linked statically. Exit code 0: all agree; 1: a result differs; anything else: a CUDA
// error.

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/cuda/products/wide_product.h"

namespace {

using namespace slime::kernels::cuda;
using Epilogue = BatchProduct::Epilogue;

constexpr int kMostRows = 256;
/// One and two row tiles a warpgroup, whole and ragged.
constexpr int kRowCounts[] = {65, 96, 128, 129, 200, 256};

struct Shape {
  Epilogue epilogue;
  int inputs, outputs;
};

/// On 132 multiprocessors: tiles for fewer than a wave of thread blocks, ragged tiles, several
/// tiles to a thread block; one K split and several, ragged ones too.
constexpr Shape kShapes[] = {{Epilogue::kSwiglu, 64, 256},  {Epilogue::kSwiglu, 128, 8576},
                             {Epilogue::kSwiglu, 64, 4224}, {Epilogue::kSplitK, 128, 64},
                             {Epilogue::kSplitK, 2112, 64}, {Epilogue::kSplitK, 4288, 128}};

std::mt19937 generator(7);

std::vector<__nv_bfloat16> random_numbers(size_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<__nv_bfloat16> numbers(count);
  for (__nv_bfloat16& number : numbers) number = __float2bfloat16(normal(generator));
  return numbers;
}

class DeviceMemory final {
 public:
  explicit DeviceMemory(size_t bytes) { check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  template <typename T>
  explicit DeviceMemory(const std::vector<T>& from) : DeviceMemory(from.size() * sizeof(T)) {
    check_cuda(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }
  void* data() const { return data_; }
  template <typename T>
  std::vector<T> read(size_t count) const {
    std::vector<T> to(count);
    check_cuda(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return to;
  }

 private:
  void* data_ = nullptr;
};

struct Operands {
  std::vector<__nv_bfloat16> x_TI, weight_OI, bias_O;
};

/// [kMostRows, outputs] in float64.
std::vector<double> product(const Operands& in, const Shape& shape, bool has_bias) {
  const auto wide = [](const std::vector<__nv_bfloat16>& from) {
    std::vector<float> to(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] = __bfloat162float(from[i]);
    return to;
  };
  const std::vector<float> x = wide(in.x_TI), weight = wide(in.weight_OI), bias = wide(in.bias_O);
  std::vector<double> y(static_cast<size_t>(kMostRows) * shape.outputs);
  for (int row = 0; row < kMostRows; ++row) {
    for (int output = 0; output < shape.outputs; ++output) {
      double sum = has_bias ? bias[output] : 0;
      const float* a = x.data() + static_cast<size_t>(row) * shape.inputs;
      const float* b = weight.data() + static_cast<size_t>(output) * shape.inputs;
      for (int i = 0; i < shape.inputs; ++i) sum += double{a[i]} * b[i];
      y[static_cast<size_t>(row) * shape.outputs + output] = sum;
    }
  }
  return y;
}

std::vector<double> swiglu(const std::vector<double>& gate_up, int outputs) {
  const int width = outputs / 2;
  std::vector<double> y(static_cast<size_t>(kMostRows) * width);
  for (int row = 0; row < kMostRows; ++row) {
    for (int f = 0; f < width; ++f) {
      const double gate = gate_up[static_cast<size_t>(row) * outputs + f];
      const double up = gate_up[static_cast<size_t>(row) * outputs + width + f];
      y[static_cast<size_t>(row) * width + f] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return y;
}

/// What a launch gives for the first rows, partial sums of split-K added up.
std::vector<double> result_of(BatchProduct call, const Shape& shape) {
  const bool is_split_k = shape.epilogue == Epilogue::kSplitK;
  const int splits = is_split_k ? wide_product_splits(shape.inputs, shape.outputs) : 1;
  const size_t count =
      static_cast<size_t>(call.rows) * (is_split_k ? shape.outputs : shape.outputs / 2);
  const DeviceMemory y(count * splits * (is_split_k ? sizeof(float) : sizeof(__nv_bfloat16)));
  call.y = y.data();
  wide_product(call, nullptr);
  check_cuda(cudaDeviceSynchronize(), "wide_product");
  std::vector<double> sums(count);
  if (is_split_k) {
    const std::vector<float> all = y.read<float>(count * splits);
    for (size_t i = 0; i < all.size(); ++i) sums[i % count] += all[i];
  } else {
    const std::vector<__nv_bfloat16> all = y.read<__nv_bfloat16>(count);
    for (size_t i = 0; i < count; ++i) sums[i] = __bfloat162float(all[i]);
  }
  return sums;
}

double relative_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

bool agrees(const Shape& shape) {
  Operands in{random_numbers(static_cast<size_t>(kMostRows) * shape.inputs, 1),
              random_numbers(static_cast<size_t>(shape.outputs) * shape.inputs,
                             1 / std::sqrt(static_cast<float>(shape.inputs))),
              random_numbers(shape.outputs, 0.5)};
  const DeviceMemory x(in.x_TI), weight(in.weight_OI), bias(in.bias_O);
  const bool has_bias = shape.epilogue == Epilogue::kSwiglu;
  std::vector<double> expected = product(in, shape, has_bias);
  if (has_bias) expected = swiglu(expected, shape.outputs);
  // bfloat16 keeps 8 bits; tensor cores truncate the low bits of what they add in float32.
  const double bound = has_bias ? 0.004 : 1e-5;
  bool all_agree = true;
  for (const int rows : kRowCounts) {
    BatchProduct call;
    call.x_TI = x.data();
    call.weight_OI = weight.data();
    call.bias_O = has_bias ? bias.data() : nullptr;
    call.rows = rows;
    call.inputs = shape.inputs;
    call.outputs = shape.outputs;
    call.epilogue = shape.epilogue;
    const double error = relative_error(result_of(call, shape), expected);
    if (error < bound) continue;
    std::printf("%d rows, %d inputs, %d outputs: relative error %g\n", rows, shape.inputs,
                shape.outputs, error);
    all_agree = false;
  }
  return all_agree;
}

}  // namespace

int main() {
  if (!has_wide_product(Number::kBFloat16, kMostRows)) {
    std::printf("this GPU has no wide products\n");
    return 0;
  }
  bool all_agree = true;
  for (const Shape& shape : kShapes) all_agree &= agrees(shape);
  std::printf("wide products %s their twin\n", all_agree ? "equal" : "differ from");
  return all_agree ? 0 : 1;
}
