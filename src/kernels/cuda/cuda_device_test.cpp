/// Kernels of the GPU against their slow twins on the CPU.

#include <ATen/ATen.h>

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
        const Tensor wide = x.to(at::kDouble);
        EXPECT_LT(relative_error(gpu.rms_norm(to_gpu(x), to_gpu(weight), 1e-6),
                                 twin().rms_norm(wide, weight.to(at::kDouble), 1e-6)),
                  tolerance(type));
        Tensor sum = to_gpu(x).clone();
        const Tensor normed = gpu.add_rms_norm_(sum, to_gpu(update), to_gpu(weight), 1e-6);
        const Tensor expected = (x.to(at::kFloat) + update.to(at::kFloat)).to(type);
        EXPECT_TRUE(sum.to(at::kCPU).equal(expected));
        EXPECT_LT(relative_error(normed, twin().rms_norm(expected.to(at::kDouble),
                                                         weight.to(at::kDouble), 1e-6)),
                  tolerance(type));
      }
    }
  }
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
      EXPECT_LT(relative_error(gpu.swiglu(to_gpu(gate_up)), twin().swiglu(gate_up.to(at::kDouble))),
                tolerance(type));
    }
  }
}

TEST(CudaDevice, ProductsEqualTheirTwinForFewAndManyRows) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : kGpuTypes) {
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{48, 64}, {2560, 4096}, {352, 72}, {6144, 2560}}) {
      const Tensor weight = numbers({outputs, inputs}, type), bias = numbers({outputs}, type);
      for (const int64_t rows : {1, 7, 8, 9, 17, 32, 33, 200, 700}) {
        const Tensor x = numbers({rows, inputs}, type);
        const Tensor wide_x = x.to(at::kDouble), wide_weight = weight.to(at::kDouble);
        for (const bool has_bias : {false, true}) {
          const Tensor b = has_bias ? bias : Tensor();
          EXPECT_LT(
              relative_error(gpu.linear(to_gpu(x), to_gpu(weight), to_gpu(b)),
                             twin().linear(wide_x, wide_weight, has_bias ? b.to(at::kDouble) : b)),
              tolerance(type))
              << at::toString(type) << " " << rows << "x" << inputs << " -> " << outputs;
        }
        const Tensor logits = gpu.logits(to_gpu(x), to_gpu(weight));
        EXPECT_EQ(logits.scalar_type(), at::kFloat);
        // Tensor cores cut off the low bits of what they add.
        EXPECT_LT(relative_error(logits, twin().logits(wide_x, wide_weight)), 1e-5);
      }
    }
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
        const Tensor expected = twin().norm_rotate(
            qkv.to(at::kDouble), positions, has_norm ? q.to(at::kDouble) : q,
            has_norm ? k.to(at::kDouble) : k, cosine.to(at::kDouble), sine.to(at::kDouble), shape);
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
