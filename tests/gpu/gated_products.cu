// Gated products of prompts (kernels/cuda/products/gated_product.h) by themselves, against plain loops
// on the GPU. A program of its own for compute-sanitizer, which needs nothing but the driver: the CUDA
// runtime is linked statically. Exit code 0: all agree; 1: a result differs; anything else: a CUDA error.

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "kernels/cuda/products/gated_product.h"

namespace {

using namespace slime::kernels::cuda;

struct Shape {
  int rows, inputs, units;
};

/// Fewer tiles than thread blocks and more; an odd tile of rows; last tiles with few rows or pairs of
/// their own; fewer stages than the pipeline has, and several rounds of it.
constexpr Shape kChecked[] = {{769, 64, 128},   {800, 128, 136},   {896, 256, 576}, {1024, 320, 640},
                              {1153, 448, 3080}, {1409, 576, 2432}, {2049, 192, 4096}};

__global__ void fill(__nv_bfloat16* to, int64_t count, float scale, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t x = (static_cast<uint64_t>(seed) << 40) + i;
    const auto draw = [&] {
      x += 0x9e3779b97f4a7c15;
      uint64_t z = x;
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
      z = (z ^ z >> 27) * 0x94d049bb133111eb;
      return (static_cast<float>((z ^ z >> 31) >> 40) + 0.5F) / 16777216.0F;
    };
    const float u = draw(), v = draw();
    to[i] = __float2bfloat16(scale * sqrtf(-2 * logf(u)) * cosf(6.2831853F * v));
  }
}

__global__ void plain(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                      const __nv_bfloat16* bias, double* y, Shape shape) {
  const int unit = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (unit >= shape.units) return;
  const auto sum_of = [&](int output) {
    double sum = bias == nullptr ? 0 : static_cast<double>(__bfloat162float(bias[output]));
    for (int i = 0; i < shape.inputs; ++i)
      sum += static_cast<double>(__bfloat162float(x[int64_t{row} * shape.inputs + i])) *
             __bfloat162float(weight[int64_t{output} * shape.inputs + i]);
    return sum;
  };
  const double gate = sum_of(unit), up = sum_of(shape.units + unit);
  y[int64_t{row} * shape.units + unit] = gate / (1 + exp(-gate)) * up;
}

template <typename T>
class Memory final {
 public:
  explicit Memory(int64_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> read() const {
    std::vector<T> to(count_);
    check_cuda(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return to;
  }

 private:
  int64_t count_;
  void* data_ = nullptr;
};

using Numbers = Memory<__nv_bfloat16>;

void draw(const Numbers& to, int64_t count, float scale, uint32_t seed) {
  fill<<<1024, 256>>>(to.data(), count, scale, seed);
  check_cuda(cudaGetLastError(), "fill");
}

/// Rows one by one: a tile that is missing shows. The results are poisoned before.
bool agrees(const Shape& shape, bool has_bias) {
  const int64_t weights = int64_t{2} * shape.units * shape.inputs;
  const int64_t results = int64_t{shape.rows} * shape.units;
  const Numbers x(int64_t{shape.rows} * shape.inputs), weight(weights), bias(2 * shape.units),
      y(results);
  draw(x, int64_t{shape.rows} * shape.inputs, 1, 1);
  draw(weight, weights, 1 / std::sqrt(static_cast<float>(shape.inputs)), 2);
  draw(bias, 2 * shape.units, 0.5, 3);
  const Memory<double> expected(results);
  plain<<<dim3((shape.units + 127) / 128, shape.rows), 128>>>(
      x.data(), weight.data(), has_bias ? bias.data() : nullptr, expected.data(), shape);
  check_cuda(cudaMemset(y.data(), 0xff, results * 2), "cudaMemset");
  GatedProduct call;
  call.rows = shape.rows;
  call.inputs = shape.inputs;
  call.units = shape.units;
  call.x_TI = x.data();
  call.weight_2FI = weight.data();
  call.bias_2F = has_bias ? bias.data() : nullptr;
  call.y_TF = y.data();
  gated_product(call, nullptr);
  check_cuda(cudaDeviceSynchronize(), "gated_product");
  const std::vector<__nv_bfloat16> got = y.read();
  const std::vector<double> exact = expected.read();
  for (int row = 0; row < shape.rows; ++row) {
    double difference = 0, size = 0;
    for (int64_t i = int64_t{row} * shape.units; i < int64_t{row + 1} * shape.units; ++i) {
      const double error = __bfloat162float(got[i]) - exact[i];
      difference += error * error;
      size += exact[i] * exact[i];
    }
    const double error = std::sqrt(difference / size);
    if (error < 0.004) continue;  // bfloat16 keeps 8 bits
    std::printf("%d x %d -> %d, %s bias: error %g of row %d\n", shape.rows, shape.inputs,
                shape.units, has_bias ? "a" : "no", error, row);
    return false;
  }
  return true;
}

}  // namespace

int main() try {
  if (compute_capability_major() != 9) {
    std::puts("this GPU has no gated products");
    return 0;
  }
  bool all_agree = true;
  for (const Shape& shape : kChecked)
    for (const bool has_bias : {false, true}) all_agree &= agrees(shape, has_bias);
  std::printf("gated products %s their twin\n", all_agree ? "equal" : "differ from");
  return all_agree ? 0 : 1;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 2;
}
