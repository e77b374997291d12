// Cases of src/kernels/cuda/sparse (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include <bit>

#include "kernels/cuda/sparse/sparse.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

constexpr int64_t kSize = kIndexSize, kHalf = 32;

double error_of_index_rows(BlockExecutor& executor, bool rotates_pairs) {
  const int64_t rows = 2, heads = 16;
  const auto type = at::kBFloat16;
  const Tensor query = random({rows, heads * kSize}, type), key = random({rows, kSize}, type);
  const Tensor weight = random({rows, heads}), norm = random({kSize}, type),
               bias = random({kSize}, type);
  const Tensor angles = random({6, kHalf}), cosine = angles.cos(), sine = angles.sin();
  const Tensor positions = at::tensor({int64_t{5}, int64_t{2}});
  const Tensor made_query = unwritten({rows, heads, kSize}), made_key = unwritten({rows, kSize});
  const Tensor scaled = unwritten({rows, heads});
  IndexRowsCall call;
  call.query_TE = query.data_ptr(), call.key_TD = key.data_ptr();
  call.weight_TJ = weight.data_ptr<float>();
  call.norm_D = norm.data_ptr(), call.norm_bias_D = bias.data_ptr();
  call.cos_PR = cosine.data_ptr<float>(), call.sin_PR = sine.data_ptr<float>();
  call.positions_T = positions.data_ptr<int64_t>();
  call.made_query_TJD = made_query.data_ptr<float>(), call.made_key_TD = made_key.data_ptr<float>();
  call.scaled_weight_TJ = scaled.data_ptr<float>();
  call.num_rows = rows, call.num_heads = heads;
  call.eps = 1e-6F;
  call.rotates_pairs = rotates_pairs;
  index_rows(call, &executor);
  const auto rotated = [&](const Tensor& x_TJD) {
    const Tensor x = x_TJD.narrow(2, 0, 2 * kHalf), pairs = x.reshape({rows, -1, kHalf, 2});
    const Tensor a = rotates_pairs ? pairs.select(3, 0) : x.narrow(2, 0, kHalf);
    const Tensor b = rotates_pairs ? pairs.select(3, 1) : x.narrow(2, kHalf, kHalf);
    const auto of_rows = [&](const Tensor& table) {
      return table.to(at::kDouble).index_select(0, positions).unsqueeze(1);
    };
    const Tensor c = of_rows(cosine), s = of_rows(sine);
    return at::cat({a * c - b * s, b * c + a * s, x_TJD.narrow(2, 2 * kHalf, kSize - 2 * kHalf)},
                   2);
  };
  const Tensor q = query.to(at::kDouble).view({rows, heads, kSize}) / std::sqrt(double(kSize));
  const Tensor k = at::layer_norm(key.to(at::kDouble), {kSize}, norm.to(at::kDouble),
                                  bias.to(at::kDouble), 1e-6);
  return std::max({error_of(made_query, rotated(q), 2e-6),
                   error_of(made_key, rotated(k.unsqueeze(1)).squeeze(1), 2e-6),
                   error_of(scaled, weight / std::sqrt(double(heads)), 2e-6)});
}

/// The number that a score's integer stands for.
float score_of(uint32_t ordered) {
  return std::bit_cast<float>((ordered & 0x80000000U) != 0 ? ordered ^ 0x80000000U : ~ordered);
}

/// A row of one tile, one of several, and one that sees too few tokens to have scores.
double error_of_scores(BlockExecutor& executor, int64_t heads) {
  const int64_t rows = 3, most_keys = 200, most_chosen = 20;
  const std::vector<int64_t> positions{60, 10, 197};
  const std::vector<int32_t> starts{0, 4, 5, 18};
  const Tensor pages = at::randperm(18, at::TensorOptions(at::kInt)),
               keys = random({18, 16, kSize});
  const Tensor query = random({rows, heads, kSize}), weight = random({rows, heads}),
               own = random({rows, kSize});
  const Tensor scores = at::zeros({rows, most_keys}, at::TensorOptions(at::kInt));
  std::vector<int32_t> slots;
  Tensor exact_keys = keys.to(at::kDouble).view({-1, kSize});
  for (int64_t row = 0; row < rows; ++row) {
    slots.push_back(pages[starts[row] + positions[row] / 16].item<int32_t>() * 16 +
                    static_cast<int32_t>(positions[row] % 16));
    exact_keys[slots.back()].copy_(own[row]);
  }
  IndexScores call;
  call.query_TJD = query.data_ptr<float>(), call.key_TD = own.data_ptr<float>();
  call.weight_TJ = weight.data_ptr<float>(), call.keys = keys.data_ptr<float>();
  call.positions_T = positions.data(), call.slot_T = slots.data();
  call.page_starts = starts.data(), call.pages = pages.data_ptr<int32_t>();
  call.score_TK = reinterpret_cast<uint32_t*>(scores.data_ptr<int32_t>());
  call.num_rows = rows, call.num_heads = static_cast<int>(heads);
  call.most_keys = most_keys, call.most_chosen = most_chosen;
  index_scores(call, &executor);
  double worst = error_of_bits(keys.view({-1, kSize}),
                               exact_keys.to(at::kFloat));  // own keys are in their slots
  worst = std::max(worst, error_of_bits(scores[1], at::zeros_like(scores[1])));
  for (const int64_t row : {0, 2}) {
    const int64_t count = positions[row] + 1;
    const Tensor places = pages.narrow(0, starts[row], starts[row + 1] - starts[row])
                              .unsqueeze(1)
                              .mul(16)
                              .add(at::arange(16, at::TensorOptions(at::kInt)))
                              .view({-1})
                              .narrow(0, 0, count);
    const Tensor products =
        at::mm(query[row].to(at::kDouble), exact_keys.index_select(0, places).t());
    const Tensor exact = at::mv(products.relu().t(), weight[row].to(at::kDouble));
    const Tensor made = at::empty({count});
    for (int64_t i = 0; i < count; ++i)
      made[i] = score_of(static_cast<uint32_t>(scores[row][i].item<int32_t>()));
    worst = std::max(worst, error_of(made, exact, 5e-6));
  }
  return worst;
}

}  // namespace

std::vector<KernelCase> sparse_cases() {
  std::vector<KernelCase> cases;
  for (const bool pairs : {false, true})
    cases.push_back({"sparse/index_rows",
                     pairs ? "IndexRowsOfPairs" : "IndexRows",
                     [pairs](BlockExecutor& on) { return error_of_index_rows(on, pairs); },
                     {exchange_mistake(16), absent_thread(34)}});
  for (const int64_t heads : {int64_t{16}, int64_t{32}, int64_t{64}})
    cases.push_back({"sparse/index_scores",
                     "IndexScoresOf" + std::to_string(heads),
                     [heads](BlockExecutor& on) { return error_of_scores(on, heads); },
                     {exchange_mistake(16), barrier_mistake(), absent_thread(2)}});
  return cases;
}

}  // namespace slime::kernels::cuda
