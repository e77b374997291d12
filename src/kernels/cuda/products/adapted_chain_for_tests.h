#pragma once

/// The products between two attentions with adapters beside them, for tests on a GPU.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/adapters.h"
#include "kernels/block_chain.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/device.h"

namespace slime::kernels {

struct AdaptedShape {
  const char* name = "";
  int64_t attended = 0, hidden = 0, width = 0, heads = 0;
};

inline constexpr AdaptedShape kSmallAdapted{"Small", 64, 128, 256, 192},
    kUnevenAdapted{"Uneven", 192, 640, 1088, 1096},
    kLargeAdapted4b{"Large4b", 4096, 2560, 9728, 6144};

/// Pairs of one adapter beside one matrix: outputs [begin, end) in shares of the matrix, and a rank.
struct PairForm {
  double begin = 0, end = 1;
  int64_t rank = 0;
};

/// One matrix with the adapters of each slot.
class AdaptedMatrix {
 public:
  AdaptedMatrix(int64_t outputs, int64_t inputs, const std::vector<std::vector<PairForm>>& slots,
                const AdapterRows& rows) {
    const auto sized = [&](at::IntArrayRef shape, double scale) {
      return (scale * at::randn(shape)).to(at::kBFloat16);
    };
    const double scale_of_input = 1 / std::sqrt(static_cast<double>(inputs));
    plain_ = sized({outputs, inputs}, scale_of_input);
    for (const std::vector<PairForm>& slot : slots) {
      adapters_.of_slot.emplace_back();
      for (const PairForm& form : slot) {
        auto pair = std::make_unique<LowRankPair>();
        pair->begin = static_cast<int64_t>(form.begin * static_cast<double>(outputs)) / 8 * 8;
        pair->end = static_cast<int64_t>(form.end * static_cast<double>(outputs)) / 8 * 8;
        // Numbers of 16 bits, so that only sums differ.
        const Tensor a = sized({form.rank, inputs}, scale_of_input);
        const Tensor b = sized({pair->end - pair->begin, form.rank},
                               1 / std::sqrt(static_cast<double>(form.rank)));
        pair->scale = 0.5;
        pair->a = Param(a.to(at::kCUDA, at::kFloat));
        pair->b = Param(b.to(at::kCUDA, at::kFloat));
        adapters_.of_slot.back().push_back(pair.get());
        pairs_.push_back(std::move(pair));
      }
    }
    adapters_.rows = &rows;
    on_gpu_.values = plain_.to(at::kCUDA);
    on_gpu_.adapters = &adapters_;
  }
  AdaptedMatrix(const AdaptedMatrix&) = delete;

  MatrixAdapters& adapters() { return adapters_; }
  const Matrix& on_gpu() const { return on_gpu_; }
  /// With the adapter of a slot merged; -1: of rows that take none.
  Tensor exact(int64_t slot) const {
    Tensor merged = plain_.to(at::kDouble);
    if (slot < 0) return merged;
    for (const LowRankPair* pair : adapters_.of_slot[static_cast<size_t>(slot)])
      merged.narrow(0, pair->begin, pair->end - pair->begin)
          .add_(wide(pair->b.value.cpu()).mm(wide(pair->a.value.cpu())), pair->scale);
    return merged;
  }

 private:
  Tensor plain_;
  std::vector<std::unique_ptr<LowRankPair>> pairs_;
  MatrixAdapters adapters_;
  Matrix on_gpu_;
};

/// Pairs of adapters beside the matrices between two attentions, by slot.
struct AdapterForms {
  std::vector<std::vector<PairForm>> output, gate_up, down, qkv;
};

/// The second adapter has fewer pairs, of other ranks.
inline AdapterForms two_adapters() {
  return {.output = {{{0, 1, 32}}, {{0, 1, 8}}},
          .gate_up = {{{0, 0.5, 32}, {0.5, 1, 16}}, {{0.5, 1, 64}}},
          .down = {{{0, 1, 33}}, {}},
          .qkv = {{{0, 0.66, 32}, {0.66, 0.83, 8}, {0.83, 1, 40}}, {{0, 0.66, 1}, {0.83, 1, 4}}}};
}

/// The matrices between two attentions.
struct AdaptedChain {
  AdapterRows rows;
  AdaptedMatrix output, gate_up, down, qkv;
  BlockChain chain;

  AdaptedChain(const AdaptedShape& shape, int64_t num_rows,
               const AdapterForms& forms = two_adapters())
      : output(shape.hidden, shape.attended, forms.output, rows),
        gate_up(2 * shape.width, shape.hidden, forms.gate_up, rows),
        down(shape.hidden, shape.width, forms.down, rows),
        qkv(shape.heads, shape.hidden, forms.qkv, rows) {
    const auto narrow = [](at::IntArrayRef sizes, double scale) {
      return (scale * at::randn(sizes)).to(at::kBFloat16);
    };
    chain.attended_TC = narrow({num_rows, shape.attended}, 1);
    chain.residual_TH = narrow({num_rows, shape.hidden}, 2);
    chain.post_norm_H = narrow({shape.hidden}, 1);
    chain.next_norm_H = narrow({shape.hidden}, 1);
    chain.next_qkv_bias_E = narrow({shape.heads}, 0.5);
    chain.eps = 1e-5;
  }

  std::array<AdaptedMatrix*, 4> matrices() { return {&output, &gate_up, &down, &qkv}; }

  /// The first rows on the GPU.
  BlockChain on_gpu(int64_t num_rows) const {
    BlockChain part = chain;
    part.attended_TC = to_gpu(chain.attended_TC.narrow(0, 0, num_rows));
    part.residual_TH = to_gpu(chain.residual_TH.narrow(0, 0, num_rows).clone());
    part.post_norm_H = to_gpu(chain.post_norm_H);
    part.next_norm_H = to_gpu(chain.next_norm_H);
    part.next_qkv_bias_E = to_gpu(chain.next_qkv_bias_E);
    part.output_HC = output.on_gpu();
    part.gate_up_2FH = gate_up.on_gpu();
    part.down_HF = down.on_gpu();
    part.next_qkv_EH = qkv.on_gpu();
    return part;
  }

  /// All rows with the adapter of one slot, rounded where training stores results.
  Tensor exact(int64_t slot) const {
    const auto rounded = [](const Tensor& x) { return x.to(at::kBFloat16).to(at::kDouble); };
    const Device& device = twin();
    Tensor residual_TH = wide(chain.residual_TH);
    const auto added_norm = [&](const Tensor& update_TH, const Tensor& norm_H) {
      residual_TH = rounded(residual_TH + rounded(update_TH));
      return rounded(device.rms_norm(residual_TH, wide(norm_H), chain.eps));
    };
    const Tensor input_TH = added_norm(
        device.linear(wide(chain.attended_TC), output.exact(slot), {}), chain.post_norm_H);
    const Tensor gated_TF =
        rounded(device.swiglu(rounded(device.linear(input_TH, gate_up.exact(slot), {}))));
    const Tensor next_TH =
        added_norm(device.linear(gated_TF, down.exact(slot), {}), chain.next_norm_H);
    return device.linear(next_TH, qkv.exact(slot), wide(chain.next_qkv_bias_E));
  }
};

/// Each chain's first rows, fifty times on a stream of its own while the other's run: equal results.
inline void expect_the_same_bits_beside_another(const BlockChains& chains,
                                                const std::array<const AdaptedChain*, 2>& both,
                                                int64_t rows) {
  std::array<bool, 2> are_equal = {};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < both.size(); ++i) {
    threads.emplace_back([&, i] {
      const at::NoGradGuard no_grad;
      const c10::impl::VirtualGuardImpl device(at::kCUDA);
      const c10::StreamGuard guard(
          device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0), i == 0));
      std::vector<BlockChain> parts;
      for (int pass = 0; pass < 50; ++pass) parts.push_back(both[i]->on_gpu(rows));
      std::vector<Tensor> results;
      for (const BlockChain& part : parts) results.push_back(chains.block_chain(part));
      are_equal[i] = true;
      for (const Tensor& result : results)
        are_equal[i] = are_equal[i] && result.equal(results.front());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(are_equal[0] && are_equal[1]);
}

}  // namespace slime::kernels
