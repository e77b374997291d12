/// Training kernels of the GPU against their slow twins on the CPU in float64. Tests of `Large`
/// shapes are not run under compute-sanitizer (./dev sanitize gpu): the others reach every branch.

#include <ATen/ATen.h>

#include "kernels/adamw.h"
#include "kernels/cuda/gpu_test_tensors.h"

namespace slime::kernels {
namespace {

/// Roundings of the result and float32 sums inside.
double training_tolerance(at::ScalarType type) {
  return type == at::kFloat ? 5e-6 : type == at::kBFloat16 ? 8e-3 : 1e-3;
}

void expect_gradients_of_norms(int64_t rows, int64_t hidden, at::ScalarType type,
                               at::ScalarType of_weight) {
  const Device& gpu = open_gpu().device();
  {
    const Tensor x = numbers({rows, hidden}, type), dy = numbers({rows, hidden}, type);
    const Tensor dsum = numbers({rows, hidden}, type), weight = numbers({hidden}, of_weight);
    Tensor grad = at::ones({hidden}, at::kCUDA), exact = at::ones({hidden}, at::kDouble);
    EXPECT_LT(
        relative_error(gpu.rms_norm_backward(to_gpu(dy), to_gpu(x), to_gpu(weight), 1e-6, grad),
                       twin().rms_norm_backward(wide(dy), wide(x), wide(weight), 1e-6, exact)),
        training_tolerance(type));
    EXPECT_LT(relative_error(grad, exact), 1e-5) << "gradient of the weight";
    EXPECT_LT(relative_error(gpu.add_rms_norm_backward(to_gpu(dsum), to_gpu(dy), to_gpu(x),
                                                       to_gpu(weight), 1e-6, Tensor()),
                             twin().add_rms_norm_backward(wide(dsum), wide(dy), wide(x),
                                                          wide(weight), 1e-6, Tensor())),
              training_tolerance(type));
    Tensor sum;
    const Tensor normed = gpu.add_rms_norm(to_gpu(x), to_gpu(dsum), to_gpu(weight), 1e-6, sum);
    EXPECT_TRUE(sum.cpu().equal((x.to(at::kFloat) + dsum.to(at::kFloat)).to(type)));
    EXPECT_LT(relative_error(normed, twin().rms_norm(wide(sum.cpu()), wide(weight), 1e-6)),
              training_tolerance(type));
  }
}

void expect_gradients_of_norms(int64_t rows, int64_t hidden) {
  for (const auto type : kGpuTypes) expect_gradients_of_norms(rows, hidden, type, type);
}

/// Some of all rows, as products beside messages compute them (kernels/device.h).
TEST(CudaTraining, ProductsIntoRowsThatLeaveProcessorsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : kGpuTypes) {
    const Tensor x = numbers({260, 72}, type), weight = numbers({136, 72}, type),
                 dy = numbers({260, 136}, type);
    Tensor y = at::zeros({300, 136}, to_gpu(x).options()), dx = at::zeros({300, 72}, y.options());
    Tensor grad = at::ones({136, 72}, at::kCUDA), exact = at::ones({136, 72}, at::kDouble);
    {
      const RoomForMessages room(gpu, 16);
      gpu.linear_into(y.narrow(0, 30, 260), to_gpu(x), to_gpu(weight), {});
      gpu.linear_input_grad_into(dx.narrow(0, 30, 260), to_gpu(dy), to_gpu(weight));
      gpu.add_linear_weight_grad_(grad, to_gpu(dy), to_gpu(x));
    }
    twin().add_linear_weight_grad_(exact, wide(dy), wide(x));
    EXPECT_LT(relative_error(y.narrow(0, 30, 260), twin().linear(wide(x), wide(weight), {})),
              training_tolerance(type));
    EXPECT_LT(
        relative_error(dx.narrow(0, 30, 260), twin().linear_input_grad(wide(dy), wide(weight))),
        training_tolerance(type));
    EXPECT_LT(relative_error(grad, exact), 1e-5);
    for (const Tensor& all : {y, dx}) {
      EXPECT_EQ(all.narrow(0, 0, 30).count_nonzero().item<int64_t>(), 0);
      EXPECT_EQ(all.narrow(0, 290, 10).count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST(CudaTraining, GradientsOfNormsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  for (const int64_t hidden : {8, 72, 2560, 8200}) {  // the last: several packs for a thread
    for (const int64_t rows : {1, 129}) expect_gradients_of_norms(rows, hidden);
  }
  expect_gradients_of_norms(1200, 72);  // several rows for a block
}

/// One plus a weight has more digits than the rows.
TEST(CudaTraining, GradientsOfNormsWithAFloatWeightEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t hidden : {8, 72, 2560, 8200})
      expect_gradients_of_norms(33, hidden, type, at::kFloat);
  }
}

TEST(CudaTraining, GradientsOfLargeNormsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  for (const int64_t rows : {1, 129}) expect_gradients_of_norms(rows, 16384);
  for (const int64_t hidden : {8, 2560, 16384}) expect_gradients_of_norms(1200, hidden);
}

void expect_gradient_of_gated_activation(int64_t rows, int64_t width) {
  for (const auto type : kGpuTypes) {
    const Tensor x = numbers({rows, 2 * width}, type), dy = numbers({rows, width}, type);
    EXPECT_LT(relative_error(open_gpu().device().swiglu_backward(to_gpu(dy), to_gpu(x)),
                             twin().swiglu_backward(wide(dy), wide(x))),
              training_tolerance(type));
  }
}

TEST(CudaTraining, GradientOfTheGatedActivationEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  for (const int64_t width : {8, 1096}) {
    for (const int64_t rows : {1, 131}) expect_gradient_of_gated_activation(rows, width);
  }
  expect_gradient_of_gated_activation(40000, 8);  // several rows for a block
}

TEST(CudaTraining, GradientOfALargeGatedActivationEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  for (const int64_t rows : {1, 131}) expect_gradient_of_gated_activation(rows, 9728);
}

void expect_gradient_of_heads(int64_t rows, const RotaryShape& shape,
                              bool has_float_norms = false) {
  const Device& gpu = open_gpu().device();
  const int64_t heads = shape.num_heads + 2 * shape.num_kv_heads, dim = shape.head_dim;
  for (const auto type : kGpuTypes) {
    const auto of_norm = has_float_norms ? at::kFloat : type;
    const Tensor x = numbers({rows, heads * dim}, type), dy = numbers({rows, heads * dim}, type);
    const Tensor angle = at::rand({100, dim / 2}) * 6;
    const Tensor positions = at::randint(100, {rows}, at::kLong);
    for (const bool has_norm : {true, false}) {
      const Tensor q = has_norm ? numbers({dim}, of_norm) : Tensor(),
                   k = has_norm ? numbers({dim}, of_norm) : Tensor();
      Tensor dq = has_norm ? at::zeros({dim}, at::kCUDA) : Tensor(),
             dk = has_norm ? at::zeros({dim}, at::kCUDA) : Tensor();
      Tensor dq_exact = has_norm ? at::zeros({dim}, at::kDouble) : Tensor(),
             dk_exact = has_norm ? at::zeros({dim}, at::kDouble) : Tensor();
      const Tensor in = has_norm ? x : Tensor();
      EXPECT_LT(
          relative_error(gpu.norm_rotate_backward(to_gpu(dy), to_gpu(in), to_gpu(positions),
                                                  to_gpu(q), to_gpu(k), to_gpu(angle.cos()),
                                                  to_gpu(angle.sin()), shape, dq, dk),
                         twin().norm_rotate_backward(wide(dy), wide(in), positions, wide(q),
                                                     wide(k), wide(angle.cos()), wide(angle.sin()),
                                                     shape, dq_exact, dk_exact)),
          training_tolerance(type));
      if (!has_norm) continue;
      EXPECT_LT(relative_error(dq, dq_exact), 1e-5);
      EXPECT_LT(relative_error(dk, dk_exact), 1e-5);
    }
  }
}

TEST(CudaTraining, GradientOfNormedAndRotatedHeadsEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  for (const RotaryShape& shape : {RotaryShape{5, 1, 64, 1e-6}, RotaryShape{7, 1, 128, 1e-6},
                                   RotaryShape{4, 2, 256, 1e-6}, RotaryShape{2, 2, 16, 1e-6}})
    for (const bool has_float_norms : {false, true})
      expect_gradient_of_heads(77, shape, has_float_norms);
  // Several rows for a block, with and without accesses of 16 bytes.
  expect_gradient_of_heads(601, {2, 2, 16, 1e-6});
  expect_gradient_of_heads(1201, {5, 1, 64, 1e-6});
  expect_gradient_of_heads(1201, {7, 1, 128, 1e-6});
  expect_gradient_of_heads(1201, {2, 1, 256, 1e-6});
}

TEST(CudaTraining, GradientOfLargeRotatedHeadsEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  expect_gradient_of_heads(77, {32, 8, 128, 1e-6});
}

/// With zeros in the rows that are only looked at: what kernels leave there nobody reads.
Tensor queried(const Tensor& x, const std::vector<Segment>& segments) {
  const Tensor rows = x.clone();
  for (const Segment& segment : segments) {
    if (!segment.has_queries) rows.narrow(0, segment.begin, segment.end - segment.begin).zero_();
  }
  return rows;
}

void expect_attention(at::ScalarType type, const RotaryShape& heads,
                      const std::vector<Segment>& segments, int64_t window, double scale = 0.11) {
  const Device& gpu = open_gpu().device();
  const int64_t rows = std::ranges::max(segments, {}, &Segment::end).end,
                out = heads.num_heads * heads.head_dim;
  const Tensor x = numbers({rows, out + 2 * heads.num_kv_heads * heads.head_dim}, type) * 0.7;
  const Tensor dy = numbers({rows, out}, type);
  const TreeAttentionShape shape{scale, window};
  Tensor lse, lse_exact;
  const Tensor y = gpu.tree_attention(to_gpu(x), segments, heads, shape, lse);
  const Tensor exact = twin().tree_attention(wide(x), segments, heads, shape, lse_exact);
  EXPECT_LT(relative_error(queried(y, segments), queried(exact, segments)),
            2 * training_tolerance(type));
  EXPECT_LT(relative_error(queried(lse, segments), queried(lse_exact, segments)), 1e-3);
  const Tensor dx =
      gpu.tree_attention_backward(to_gpu(dy), y, to_gpu(x), lse, segments, heads, shape);
  const Tensor dx_exact =
      twin().tree_attention_backward(wide(dy), exact, wide(x), lse_exact, segments, heads, shape);
  EXPECT_LT(relative_error(dx, dx_exact), 3 * training_tolerance(type));
}

/// Up to four ranges of up to 128 rows: for cuDNN all levels without a mask are one plan, and those
/// with one are another. Plans, and their kernels under compute-sanitizer, are what takes time.
TEST(CudaTraining, AttentionOverTreesAndItsGradientEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> roots = {{0, 1, -1}, {1, 101, -1}, {101, 229, -1}};
  const std::vector<Segment> siblings = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  const std::vector<Segment> chain = {{0, 3, -1}, {3, 5, 0}, {5, 100, 1}, {100, 129, -1}};
  const std::vector<Segment> within_window = {
      {0, 1, -1}, {1, 101, -1}, {101, 104, -1}, {104, 130, 2}};
  for (const auto& [type, heads] : {std::pair{at::kBFloat16, RotaryShape{5, 1, 64, 0}},
                                    std::pair{at::kHalf, RotaryShape{7, 1, 128, 0}}}) {
    for (const auto& segments : {roots, siblings, chain})
      expect_attention(type, heads, segments, 0);
    for (const auto& segments : {roots, within_window}) expect_attention(type, heads, segments, 33);
  }
}

TEST(CudaTraining, AttentionWhoseWindowEndsInAnotherSegmentEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> siblings = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  const std::vector<Segment> chain = {{0, 3, -1}, {3, 5, 0}, {5, 100, 1}, {100, 129, -1}};
  for (const int64_t window : {1, 4, 33})
    for (const auto& segments : {siblings, chain})
      expect_attention(at::kBFloat16, {5, 1, 64, 0}, segments, window);
}

/// Whatever computes it: cuDNN where it has such heads, plain products elsewhere.
TEST(CudaTraining, AttentionOfHeadsOf256EqualsItsTwin) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> siblings = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  for (const int64_t window : {0, 33}) {
    expect_attention(at::kBFloat16, {4, 1, 256, 0}, {{0, 128, -1}}, window, 0.06);
    expect_attention(at::kBFloat16, {4, 1, 256, 0}, siblings, window, 0.06);
  }
}

/// One process has several models, whose heads may differ by this alone.
TEST(CudaTraining, AttentionsThatDifferByTheirScaleAreTwo) {
  SLIME_NEEDS_GPU();
  for (const double scale : {0.2, 0.05})
    expect_attention(at::kBFloat16, {4, 2, 64, 0}, {{0, 100, -1}}, 0, scale);
}

TEST(CudaTraining, AttentionOverThePiecesOfAContextParallelRankEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  // Rows 0 3 | 1 2 of a segment's four pieces, of both ranks; and a second segment that continues it.
  const auto pieces = [](int rank) {
    return std::vector<Segment>{{0, 20, -1, rank == 0},   {70, 95, 0, rank == 1},
                                {95, 120, 1, rank == 1},  {20, 41, 2, rank == 0},
                                {41, 55, 3, rank == 0},   {120, 135, 4, rank == 1},
                                {135, 150, 5, rank == 1}, {55, 70, 6, rank == 0}};
  };
  for (const auto& [type, heads] : {std::pair{at::kBFloat16, RotaryShape{5, 1, 64, 0}},
                                    std::pair{at::kHalf, RotaryShape{7, 1, 128, 0}}}) {
    for (const int rank : {0, 1}) expect_attention(type, heads, pieces(rank), 0);
  }
}

TEST(CudaTraining, AttentionOverLargeTreesAndItsGradientEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const std::vector<std::vector<Segment>> forests = {
      {{0, 1, -1}},
      {{0, 300, -1}, {300, 301, -1}, {301, 512, -1}},
      {{0, 70, -1}, {70, 75, 0}, {75, 240, 0}, {240, 241, 0}, {241, 370, 0}},
      {{0, 3, -1},
       {3, 5, 0},
       {5, 135, 1},
       {135, 136, 2},
       {136, 140, 1},
       {140, 150, 0},
       {150, 200, -1}},
  };
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const RotaryShape& heads :
         {RotaryShape{5, 1, 64, 0}, RotaryShape{32, 8, 128, 0}, RotaryShape{4, 4, 128, 0}}) {
      for (const auto& segments : forests) {
        for (const int64_t window : {0, 33}) {
          if (window > 0 && segments.back().parent >= 0) continue;
          expect_attention(type, heads, segments, window);
        }
      }
    }
  }
}

/// Rows of four heads of 128 numbers are as long as those of two of 256: each has tables of its own.
TEST(CudaTraining, AttentionOfLongHeadsAndItsGradientEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const std::vector<Segment> tree = {{0, 70, -1}, {70, 75, 0}, {75, 126, 0}, {126, 127, 0}};
  for (const RotaryShape& heads :
       {RotaryShape{4, 4, 128, 0}, RotaryShape{2, 2, 256, 0}, RotaryShape{4, 4, 192, 0}})
    expect_attention(at::kBFloat16, heads, tree, 0);
}

void expect_softmax(int64_t vocabulary) {
  const Device& gpu = open_gpu().device();
  const int64_t rows = 19;
  const Tensor logits = numbers({rows, vocabulary}, at::kFloat) * 5;
  const Tensor target = at::randint(vocabulary, {rows}, at::kLong);
  const auto empty = [&](const auto& options) {
    return std::vector<Tensor>{at::empty({rows}, options), at::empty({rows}, options),
                               at::empty({rows}, options)};
  };
  auto a = empty(at::TensorOptions(at::kFloat).device(at::kCUDA)),
       b = empty(at::TensorOptions(at::kDouble));
  gpu.softmax_statistics(to_gpu(logits), to_gpu(target), 0.7, a[0], a[1], a[2]);
  twin().softmax_statistics(wide(logits), target, 0.7, b[0], b[1], b[2]);
  // The entropy is the difference of float32 numbers some ten times its size.
  for (int i = 0; i < 3; ++i) EXPECT_LT(relative_error(a[i], b[i]), i == 1 ? 1e-5 : 2e-6);
  const Tensor dlogprob = at::randn({rows}), dentropy = at::randn({rows});
  for (const Tensor& d : {dentropy, Tensor()}) {
    const Tensor exact = twin().softmax_gradient(wide(logits), target, {0.7}, b[2], b[1],
                                                 wide(dlogprob), wide(d), at::kDouble);
    for (const auto type : kGpuTypes) {
      const Tensor grad = gpu.softmax_gradient(to_gpu(logits).clone(), to_gpu(target), {0.7}, a[2],
                                               a[1], to_gpu(dlogprob), to_gpu(d), type);
      EXPECT_EQ(grad.scalar_type(), type);
      EXPECT_LT(relative_error(grad, exact), type == at::kFloat ? 1e-5 : training_tolerance(type));
    }
  }
}

TEST(CudaTraining, SoftmaxStatisticsAndGradientEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  // One by one and in packs of four, once and several times round.
  for (const int64_t vocabulary : {7, 4096, 4099, 8204}) expect_softmax(vocabulary);
}

TEST(CudaTraining, GradientOfCappedLogitsEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const int64_t vocabulary : {7, 4099, 8204}) {
    const LogitForm form{0.7, 5};
    const Tensor logits = numbers({19, vocabulary}, at::kFloat) * 5;
    const Tensor target = at::randint(vocabulary, {19}, at::kLong);
    target[3] = -1;
    Tensor capped = to_gpu(logits).clone(), exact_capped = wide(logits).clone();
    gpu.soft_cap_(capped, form.cap);
    twin().soft_cap_(exact_capped, form.cap);
    EXPECT_LT(relative_error(capped, exact_capped), 1e-6);
    Tensor statistics[3];
    for (Tensor& x : statistics) x = at::empty({19}, at::kDouble);
    twin().softmax_statistics(exact_capped, target, form.temperature, statistics[0], statistics[1],
                              statistics[2]);
    const Tensor dlogprob = at::randn({19}), dentropy = at::randn({19});
    const auto narrow = [](const Tensor& x) { return to_gpu(x.to(at::kFloat)); };
    for (const Tensor& d : {dentropy, Tensor()}) {
      const Tensor exact =
          twin().softmax_gradient(exact_capped.clone(), target, form, statistics[2], statistics[1],
                                  wide(dlogprob), wide(d), at::kDouble);
      for (const auto type : kGpuTypes) {
        const Tensor grad =
            gpu.softmax_gradient(capped.clone(), to_gpu(target), form, narrow(statistics[2]),
                                 narrow(statistics[1]), to_gpu(dlogprob), to_gpu(d), type);
        EXPECT_LT(relative_error(grad, exact),
                  type == at::kFloat ? 1e-5 : training_tolerance(type));
      }
    }
  }
}

TEST(CudaTraining, SoftmaxOfALargeVocabularyEqualsItsTwin) {
  SLIME_NEEDS_GPU();
  expect_softmax(151936);
}

TEST(CudaTraining, WeightGradientsAreAddedInFloat32) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Tensor dy = numbers({300, 72}, type), x = numbers({300, 136}, type);
    const Tensor start = numbers({72, 136}, at::kFloat);
    Tensor grad = to_gpu(start).clone();
    open_gpu().device().add_linear_weight_grad_(grad, to_gpu(dy), to_gpu(x));
    EXPECT_LT(relative_error(grad, wide(start) + wide(dy).t().mm(wide(x))), 1e-5);
  }
}

void expect_optimizer(int64_t count) {
  const std::vector<AdamRange> ranges = {
      {0, 64, true}, {128, 60'000, false}, {60'032, count, true}};
  for (const auto type : kGpuTypes) {
    const Tensor start = numbers({count}, type);
    std::vector<Tensor> weights, masters, norms;
    for (const auto device : {at::kCPU, at::kCUDA}) {
      const Tensor w = start.to(device).clone();
      const Tensor master = type == at::kFloat ? w : w.to(at::kFloat);
      const Tensor m = at::zeros_like(master), v = at::zeros_like(master);
      for (int64_t step = 1; step <= 3; ++step) {
        const Tensor grad = (at::arange(count, at::kFloat) * 0.37 * step).sin().to(device);
        norms.push_back(at::full({1}, sum_of_squares(grad), at::kDouble));
        adamw_(w, master, m, v, grad, ranges,
               {.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.5, .step = step});
      }
      weights.push_back(w);
      masters.push_back(master);
    }
    EXPECT_LT(relative_error(masters[1], masters[0]), 1e-6);
    EXPECT_LT(relative_error(weights[1], weights[0]), type == at::kFloat ? 1e-6 : 1e-4);
    for (int i = 0; i < 3; ++i) EXPECT_LT(relative_error(norms[3 + i], norms[i]), 1e-12);
  }
}

TEST(CudaTraining, TheOptimizerAndTheNormEqualTheCpus) {
  SLIME_NEEDS_GPU();
  expect_optimizer(100'003);
}

/// More than all threads of a launch take at once.
TEST(CudaTraining, TheOptimizerOfLargeWeightsEqualsTheCpus) {
  SLIME_NEEDS_GPU();
  expect_optimizer(2'300'003);
}

}  // namespace
}  // namespace slime::kernels
