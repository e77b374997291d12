// Codes of ranks' slices on one GPU: they are those of the CPU, and their products are parts of one rank's.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/unconnected_group.h"
#include "kernels/device.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/matrix_formats.h"
#include "model/block_models_for_tests.h"
#include "model/network.h"
#include "model/stored_parts.h"

namespace slime {
namespace {

using model::Network;

model::Precision gpu_in_blocks(model::Precision precision) {
  precision.matrices = kernels::MatrixFormat::kFp8Blocks;
  return precision;
}

bool has_products() {
  const Tensor there = at::empty({0}, at::kCUDA);
  return kernels::kernels_for(there).has_format(kernels::MatrixFormat::kFp8Blocks);
}

/// A rank of two, where nobody computes with the other.
struct RankOnGpu {
  RankOnGpu(int rank, Network& whole, const model::Precision& precision)
      : mesh(comm::engine_layout(2), rank,
             [rank](comm::Axis, const std::vector<int>& members) {
               const auto own = std::ranges::find(members, rank) - members.begin();
               return std::make_unique<comm::UnconnectedGroup>(static_cast<int>(own),
                                                               static_cast<int>(members.size()));
             }),
        plain(model::make_blank_network(whole.config(), precision, mesh)),
        codes(model::make_blank_network(whole.config(), gpu_in_blocks(precision), mesh)) {
    const auto& tensors = whole.weights().tensors();
    for (const model::NamedWeight& weight : plain->weights().tensors()) {
      const auto found = std::ranges::find(tensors, weight.name, &model::NamedWeight::name);
      model::Weights::view(plain->weights().flat(), weight)
          .copy_(weight.slices.of(model::Weights::view(whole.weights().flat(), *found)));
    }
    codes->weights().copy_from(plain->weights());
  }
  comm::Mesh mesh;
  std::unique_ptr<Network> plain, codes;
};

/// The codes that a run publishes from lie on the host where the GPU has no room for them.
TEST(GpuCodeSlices, OfAGpusNumbersAreThoseOfTheCpuOnEitherSide) {
  SLIME_NEEDS_GPU();
  if (!has_products()) GTEST_SKIP() << "this GPU has no products of codes";
  const at::NoGradGuard no_grad;
  const auto config = golden_models::in_whole_blocks("qwen3");
  const model::Precision on_host{.weights = at::kBFloat16, .activations = at::kFloat},
      on_gpu = model::Precision::on_gpu("bfloat16");
  const auto trained_here = model::make_network(config, on_host, 7),
             trained_there = model::make_blank_network(config, on_gpu);
  trained_there->weights().copy_from(trained_here->weights());
  const auto expected = model::make_blank_network(config, gpu_in_blocks(on_host));
  expected->weights().copy_from(trained_here->weights());
  for (const model::Precision& precision : {on_host, on_gpu}) {
    const auto published = model::make_blank_network(config, gpu_in_blocks(precision));
    published->weights().copy_from(trained_there->weights());
    const auto parts = model::stored_parts(published->weights()),
               right = model::stored_parts(expected->weights());
    ASSERT_EQ(parts.size(), right.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_TRUE(at::equal(parts[i].value.cpu(), right[i].value)) << parts[i].name;
  }
}

void expect_part_close(const Tensor& got, const Tensor& expected, const std::string& name) {
  const double scale = expected.abs().max().to(at::kFloat).item<double>();
  const double most = (got.to(at::kFloat) - expected.to(at::kFloat)).abs().max().item<double>();
  // A bfloat16 number has eight digits; two partial sums are rounded, and their sum.
  EXPECT_LE(most, 3 * scale / 256) << name;
}

/// Activations of a slice of columns have the blocks that they have in the whole row.
TEST(GpuCodeSlices, GiveTheirPartsOfTheProductsOfOneRank) {
  SLIME_NEEDS_GPU();
  if (!has_products()) GTEST_SKIP() << "this GPU has no products of codes";
  const at::NoGradGuard no_grad;
  const model::Precision on_gpu = model::Precision::on_gpu("bfloat16");
  const auto config = golden_models::in_whole_blocks("qwen3");
  const auto trained = model::make_network(config, on_gpu, 7);
  const auto whole = model::make_blank_network(config, gpu_in_blocks(on_gpu));
  whole->weights().copy_from(trained->weights());
  const RankOnGpu first(0, *trained, on_gpu), second(1, *trained, on_gpu);
  const auto& of_whole = whole->weights().parameters();
  int num_rows = 0, num_columns = 0;
  for (const int64_t rows : {1, 5, 200}) {
    for (std::size_t i = 0; i < of_whole.size(); ++i) {
      if (!of_whole[i].stored) continue;
      const kernels::Matrix& matrix = of_whole[i].matrix->matrix;
      const Tensor x_TI =
          at::randn({rows, matrix.inputs()}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
      const kernels::Device& device = kernels::kernels_for(x_TI);
      const Tensor whole_TO = device.linear(x_TI, matrix, {});
      Tensor sum_TO;
      for (const RankOnGpu* rank : {&first, &second}) {
        const model::Weights& own = rank->codes->weights();
        const auto& param = own.parameters()[i];
        const kernels::Matrix& slice = param.matrix->matrix;
        const bool has_columns = slice.inputs() != matrix.inputs();
        const int64_t begin = has_columns ? rank->mesh.rank() * slice.inputs() : 0;
        const Tensor part_TO =
            device.linear(x_TI.narrow(1, begin, slice.inputs()).contiguous(), slice, {});
        if (has_columns) {
          sum_TO = sum_TO.defined() ? sum_TO + part_TO : part_TO;
          continue;
        }
        int64_t own_begin = 0, whole_begin = 0;
        for (std::size_t t = param.first; t < param.end; ++t) {
          const model::NamedWeight& weight = own.tensors()[t];
          const Tensor right = whole_TO.narrow(1, whole_begin, weight.full_shape[0]).t();
          expect_part_close(part_TO.narrow(1, own_begin, weight.shape[0]),
                            weight.slices.of(right).t(), weight.name);
          own_begin += weight.shape[0];
          whole_begin += weight.full_shape[0];
        }
        ++num_rows;
      }
      if (!sum_TO.defined()) continue;
      expect_part_close(sum_TO, whole_TO, whole->weights().tensors()[of_whole[i].first].name);
      ++num_columns;
    }
  }
  EXPECT_GT(num_rows, 0);
  EXPECT_GT(num_columns, 0);
}

}  // namespace
}  // namespace slime
