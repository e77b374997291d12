/// Kernels of the GPU against their slow twins on the CPU. Tests of `Large` shapes are not run
/// under compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu_test_tensors.h"

namespace slime::kernels {
namespace {

/// One rounding of the result and float32 sums inside.
double tolerance(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 4e-3 : 5e-4;
}

TEST(CudaDevice, NormsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : kGpuTypes) {
    for (const int64_t hidden : {8, 72, 2560, 8192, 16384}) {
      for (const int64_t rows : {1, 127, 129}) {
        const Tensor x = numbers({rows, hidden}, type), update = numbers({rows, hidden}, type);
        const Tensor weight = numbers({hidden}, type);
        EXPECT_LT(relative_error(gpu.rms_norm(to_gpu(x), to_gpu(weight), 1e-6),
                                 twin().rms_norm(wide(x), wide(weight), 1e-6)),
                  tolerance(type));
        Tensor sum = to_gpu(x).clone();
        const Tensor normed = gpu.add_rms_norm_(sum, to_gpu(update), to_gpu(weight), 1e-6);
        const Tensor expected = (x.to(at::kFloat) + update.to(at::kFloat)).to(type);
        EXPECT_TRUE(sum.to(at::kCPU).equal(expected));
        EXPECT_LT(relative_error(normed, twin().rms_norm(wide(expected), wide(weight), 1e-6)),
                  tolerance(type));
      }
    }
  }
}

/// As norms that add one make it, by a kernel that may still run when the norm's begins.
TEST(CudaDevice, NormsReadAWeightThatWasMadeJustBefore) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  const Tensor x = to_gpu(numbers({64, 2560}, at::kFloat)), ones = at::ones_like(x[0]),
               weight = to_gpu(numbers({2560}, at::kFloat));
  const Tensor unscaled = gpu.rms_norm(x, ones, 1e-6);
  std::vector<Tensor> normed;
  for (int i = 0; i < 200; ++i) normed.push_back(gpu.rms_norm(x, weight + i, 1e-6));
  for (int i = 0; i < 200; ++i)
    EXPECT_LT(relative_error(normed[static_cast<size_t>(i)], wide((unscaled * (weight + i)).cpu())),
              1e-6)
        << i;
}

TEST(CudaDevice, EmbeddingAndSwigluEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : kGpuTypes) {
    for (const int64_t width : {8, 136, 9728}) {
      const Tensor table = numbers({40, width}, type);
      const Tensor ids = at::randint(0, 40, {67}, at::TensorOptions(at::kLong));
      EXPECT_TRUE(gpu.embedding(to_gpu(ids), to_gpu(table), type)
                      .to(at::kCPU)
                      .equal(table.index_select(0, ids)));
      const Tensor gate_up = numbers({129, 2 * width}, type);
      EXPECT_LT(relative_error(gpu.swiglu(to_gpu(gate_up)), twin().swiglu(wide(gate_up))),
                tolerance(type));
    }
  }
}

void expect_products(at::ScalarType type, int64_t outputs, int64_t inputs,
                     std::initializer_list<int64_t> row_counts) {
  const Device& gpu = open_gpu().device();
  const Tensor weight = numbers({outputs, inputs}, type), bias = numbers({outputs}, type);
  const Tensor gpu_weight = to_gpu(weight), wide_weight = wide(weight);
  for (const int64_t rows : row_counts) {
    const Tensor x = numbers({rows, inputs}, type);
    const Tensor product = twin().linear(wide(x), wide_weight, {});
    for (const bool has_bias : {false, true}) {
      EXPECT_LT(
          relative_error(gpu.linear(to_gpu(x), gpu_weight, has_bias ? to_gpu(bias) : Tensor()),
                         has_bias ? product + wide(bias) : product),
          tolerance(type))
          << at::toString(type) << " " << rows << "x" << inputs << " -> " << outputs;
    }
    const Tensor logits = gpu.logits(to_gpu(x), gpu_weight);
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    // Tensor cores truncate the low bits of what they add.
    EXPECT_LT(relative_error(logits, product), 1e-5);
  }
}

/// Of row counts that are not timed (kernels/gpu/recorded_rows.h).
TEST(CudaDevice, ProductsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    expect_products(type, 48, 64, {7, 33, 200});
    expect_products(type, 352, 72, {7, 33, 200});
  }
}

/// One group of rows and two, several tiles for a thread block; all kernels for few rows are used.
TEST(CudaDevice, TimedProductsOfFewRowsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) expect_products(type, 48, 320, {1, 16});
  expect_products(at::kBFloat16, 4336, 256, {8});
}

TEST(CudaDevice, LargeProductsEqualTheirTwinForFewAndManyRows) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{48, 64}, {2560, 4096}, {352, 72}, {6144, 2560}})
      expect_products(type, outputs, inputs, {1, 7, 8, 9, 17, 32, 33, 200, 700});
  }
}

/// The largest error of a row, relative to that row: a tile that is missing shows.
double worst_row_error(const Tensor& a, const Tensor& exact) {
  const Tensor x = a.to(at::kDouble), y = exact.to(at::kDouble);
  return ((x - y).norm(2, {1}) / y.norm(2, {1})).max().item<double>();
}

Tensor numbers_on_gpu(at::IntArrayRef shape, double scale = 1) {
  return (at::randn(shape, at::TensorOptions(at::kFloat).device(at::kCUDA)) * scale)
      .to(at::kBFloat16);
}

/// Halves of gates and of ups, float32: what swiglu(gate_up) is where y's product rounded as it did. Tensor cores
/// truncate what they add, so that a sum next to the middle of two bfloat16 numbers may become either; there the
/// combination nearest to y is taken, and everywhere else the only one.
Tensor swiglu_of_rounded(const Device& device, const Tensor& gate_up, const Tensor& y) {
  constexpr double kTruncated = 1e-4;  // of sums of about 1
  const int64_t width = gate_up.size(1) / 2;
  const auto rounded = [&](double shift) {
    return (gate_up + shift).to(at::kBFloat16).to(gate_up.scalar_type());
  };
  const Tensor low = rounded(-kTruncated), high = rounded(kTruncated),
               wide_y = y.to(low.device(), low.scalar_type());
  Tensor nearest;
  for (const auto& gate : {low, high}) {
    for (const auto& up : {low, high}) {
      const Tensor one =
          device.swiglu(at::cat({gate.narrow(1, 0, width), up.narrow(1, width, width)}, 1));
      nearest = nearest.defined()
                    ? at::where((one - wide_y).abs() < (nearest - wide_y).abs(), one, nearest)
                    : one;
    }
  }
  return nearest;
}

/// Against single operations on the GPU in float32, and the twin; gates and ups are rounded, as where a
/// product stores them.
void expect_gated_product(int64_t rows, int64_t inputs, int64_t width, bool is_small) {
  const Device& gpu = open_gpu().device();
  const Tensor x = numbers_on_gpu({rows, inputs}), bias = numbers_on_gpu({2 * width});
  const Tensor weight =
      numbers_on_gpu({2 * width, inputs}, 1 / std::sqrt(static_cast<double>(inputs)));
  const auto in_float32 = [](const Tensor& a) { return a.defined() ? a.to(at::kFloat) : a; };
  const auto on_cpu = [](const Tensor& a) { return wide(a.defined() ? a.cpu() : a); };
  for (const bool has_bias : {false, true}) {
    const Tensor b = has_bias ? bias : Tensor();
    const std::string what = std::to_string(rows) + "x" + std::to_string(inputs) + " -> " +
                             std::to_string(width) + (has_bias ? " with a bias" : "");
    const Tensor y = gpu.gated_linear(x, weight, b);
    const Tensor expected =
        swiglu_of_rounded(gpu, gpu.linear(in_float32(x), in_float32(weight), in_float32(b)), y);
    EXPECT_LT(worst_row_error(y, expected), tolerance(at::kBFloat16)) << what;
    EXPECT_LT(worst_row_error(y.t(), expected.t()), tolerance(at::kBFloat16)) << what;
    EXPECT_TRUE(gpu.gated_linear(x, weight, b).equal(y)) << what << ", the same to the bit";
    if (!is_small) continue;
    const Tensor gate_up = twin().linear(on_cpu(x), on_cpu(weight), on_cpu(b));
    EXPECT_LT(relative_error(y, swiglu_of_rounded(twin(), gate_up, y)), tolerance(at::kBFloat16))
        << what;
  }
}

/// One stage and several rounds of the pipeline; last tiles with few rows or pairs of their own.
TEST(CudaDevice, GatedProductsOfManyRowsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  at::manual_seed(13);
  for (const int64_t inputs : {64, 192, 320, 1024})
    for (const int64_t width : {128, 136, 576}) expect_gated_product(800, inputs, width, true);
  for (const int64_t rows : {769, 1024, 1153}) expect_gated_product(rows, 256, 640, true);
}

TEST(CudaDevice, LargeGatedProductsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  at::manual_seed(14);
  for (const int64_t rows : {769, 1000, 8192 + 13}) {
    for (const auto& [inputs, width] :
         {std::pair<int64_t, int64_t>{2560, 9728}, {4096, 12288}, {1024, 3072}, {2048, 768}})
      expect_gated_product(rows, inputs, width, false);
  }
}

TEST(CudaDevice, NormAndRotationEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : kGpuTypes) {
    for (const int64_t dim : {12, 64, 128, 256}) {
      const RotaryShape shape{6, 2, dim, 1e-6};
      const Tensor qkv = numbers({37, 10 * dim}, type);
      const Tensor positions = at::randint(0, 50, {37}, at::TensorOptions(at::kLong));
      const Tensor cosine = numbers({50, dim / 2}, at::kFloat),
                   sine = numbers({50, dim / 2}, at::kFloat);
      const Tensor q_norm = numbers({dim}, type), k_norm = numbers({dim}, type);
      for (const bool has_norm : {false, true}) {
        const Tensor q = has_norm ? q_norm : Tensor(), k = has_norm ? k_norm : Tensor();
        const Tensor expected = twin().norm_rotate(wide(qkv), positions, wide(q), wide(k),
                                                   wide(cosine), wide(sine), shape);
        EXPECT_LT(relative_error(gpu.norm_rotate(to_gpu(qkv), to_gpu(positions), to_gpu(q),
                                                 to_gpu(k), to_gpu(cosine), to_gpu(sine), shape),
                                 expected),
                  tolerance(type));
      }
    }
  }
}

}  // namespace
}  // namespace slime::kernels
