// Cases of src/kernels/cuda/latent (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

Tensor latent_wide(const Tensor& x) { return x.to(at::kDouble); }

double error_of_plain_latents(BlockExecutor& executor, at::ScalarType type) {
  const int64_t rows = 3, heads = 2, rank = 72, rotary = 8, size = rank + rotary;
  const Tensor q = random({rows, heads, size}, type) * 0.2, cache = random({4, 16, size}, type);
  const std::vector<int64_t> positions{0, 20, 33};
  const std::vector<int32_t> sequence{0, 1, 1}, starts{0, 1, 4}, pages{2, 3, 0, 1};
  const Tensor out = unwritten({rows, heads, rank}, type);
  LatentAttend call;
  call.number = to_number(type);
  call.q_TNE = q.data_ptr(), call.rows = cache.data_ptr();
  call.paged.page_starts = starts.data(), call.paged.pages = pages.data();
  call.positions_T = positions.data(), call.row_sequence_T = sequence.data();
  call.out_TNL = out.data_ptr();
  call.num_rows = rows;
  call.num_heads = heads, call.rank = rank, call.rotary_dim = rotary;
  call.scale = 0.7F;
  attend_latent_plain(call, &executor);
  std::vector<Tensor> exact;
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t first = starts[sequence[row]], end = starts[sequence[row] + 1];
    const Tensor ids =
        at::tensor(at::ArrayRef<int32_t>(pages.data() + first, end - first), at::kInt);
    const Tensor keys =
        latent_wide(cache).index_select(0, ids).view({-1, size}).narrow(0, 0, positions[row] + 1);
    exact.push_back(at::mm((at::mm(latent_wide(q[row]), keys.t()) * 0.7).softmax(-1),
                           keys.narrow(1, rotary, rank)));
  }
  return error_of(out, at::stack(exact), rounding_bound(type));
}

constexpr int64_t kPlain = 32, kValue = 32;

/// Queries [T, N (P + R)]; what rows bring goes to places in the cache.
double error_of_latent_step(BlockExecutor& executor, bool rotates_pairs) {
  const int64_t rows = 3, heads = 2, head_size = kPlain + kLatentRotary;
  const auto type = at::kBFloat16;
  const Tensor query = random({rows, heads * head_size}, type),
               latent = random({rows, kLatentRank}, type);
  const Tensor rotary = random({rows, kLatentRotary}, type), norm = random({kLatentRank}, type);
  const Tensor expand = random({heads, kPlain + kValue, kLatentRank}, type);
  const Tensor angles = random({9, kLatentRotary / 2}), cosine = angles.cos(), sine = angles.sin();
  const Tensor positions = at::tensor({int64_t{4}, int64_t{0}, int64_t{8}});
  const Tensor slots = at::tensor({5, 17, 0}, at::kInt);
  const Tensor cache = unwritten({32, kLatentRow}, type),
               made = unwritten({rows, heads, kLatentRow}, type);
  LatentStep call;
  call.query = query.data_ptr(), call.latent = latent.data_ptr(),
  call.rotary_key = rotary.data_ptr();
  call.query_stride = query.size(1), call.latent_stride = kLatentRank;
  call.rotary_stride = kLatentRotary;
  call.positions_T = positions.data_ptr<int64_t>(), call.slot_T = slots.data_ptr<int32_t>();
  call.latent_norm_L = norm.data_ptr(), call.expand = expand.data_ptr();
  call.cos_PR = cosine.data_ptr<float>(), call.sin_PR = sine.data_ptr<float>();
  call.rotates_pairs = rotates_pairs;
  call.eps = 1e-6F;
  call.rows = cache.data_ptr(), call.q_TNE = made.data_ptr();
  call.num_rows = rows;
  call.num_heads = heads, call.plain_dim = kPlain, call.value_dim = kValue;
  latent_step(call, &executor);
  const Tensor c = latent_wide(cosine).index_select(0, positions),
               s = latent_wide(sine).index_select(0, positions);
  const auto rotated = [&](const Tensor& x_TR) {  // halves, whatever rotated with each other
    const Tensor x = latent_wide(x_TR), pairs = x.view({rows, -1, 2});
    const Tensor a = rotates_pairs ? pairs.select(2, 0) : x.narrow(1, 0, kLatentRotary / 2);
    const Tensor b =
        rotates_pairs ? pairs.select(2, 1) : x.narrow(1, kLatentRotary / 2, kLatentRotary / 2);
    return at::cat({a * c - b * s, b * c + a * s}, 1);
  };
  const Tensor x = latent_wide(latent);
  const Tensor normed = x * (x.square().mean(-1, true) + 1e-6).rsqrt() * latent_wide(norm);
  const double bound = rounding_bound(type);
  double worst =
      error_of(cache.index_select(0, slots), at::cat({rotated(rotary), normed}, 1), bound);
  for (int64_t head = 0; head < heads; ++head) {
    const Tensor own = query.narrow(1, head * head_size, head_size);
    const Tensor absorbed = at::mm(latent_wide(own.narrow(1, 0, kPlain)),
                                   latent_wide(expand[head].narrow(0, 0, kPlain)));
    worst = std::max(worst, error_of(made.select(1, head).narrow(1, kLatentRotary, kLatentRank),
                                     absorbed, bound));
    worst = std::max(worst, error_of(made.select(1, head).narrow(1, 0, kLatentRotary),
                                     rotated(own.narrow(1, kPlain, kLatentRotary)), bound));
  }
  return worst;
}

/// Rows of records: 0: none are merged; otherwise row 0 has so many, and row 1 none.
double error_of_latent_values(BlockExecutor& executor, int64_t rows, int32_t num_records) {
  const int64_t heads = 2;
  const auto type = at::kBFloat16;
  const Tensor x = random({rows, heads, kLatentRank}, type);
  const Tensor expand = random({heads, kPlain + kValue, kLatentRank}, type);
  const Tensor y = unwritten({rows, heads * kValue}, type), exact_x = latent_wide(x);
  const Tensor sums = random({num_records + 1, heads, kLatentRank});
  const Tensor weights =
      at::rand({num_records + 1, heads, 2}) + 0.5;  // largest, of base 2, and weight
  const std::vector<int32_t> starts{0, num_records, num_records};
  DecodeArrays plan;
  plan.record_starts = starts.data();
  plan.record_sums = sums.data_ptr<float>();
  plan.record_weights = reinterpret_cast<float2*>(weights.data_ptr<float>());
  LatentValues call;
  call.x_TNL = x.data_ptr(), call.expand = expand.data_ptr(), call.y_TC = y.data_ptr();
  call.num_rows = rows;
  call.num_heads = heads, call.plain_dim = kPlain, call.value_dim = kValue;
  if (num_records > 0) {
    call.plan = &plan;
    const Tensor own = weights.narrow(0, 0, num_records).to(at::kDouble);
    const Tensor share = at::exp2(own.select(2, 0)).unsqueeze(-1);
    const Tensor total = (share * own.select(2, 1).unsqueeze(-1)).sum(0);
    exact_x[0].copy_((share * sums.narrow(0, 0, num_records).to(at::kDouble)).sum(0) / total);
  }
  latent_values(call, &executor);
  const Tensor exact =
      at::einsum("tnl,nvl->tnv", {exact_x, latent_wide(expand).narrow(1, kPlain, kValue)});
  return error_of(y, exact.reshape(y.sizes()), 2 * rounding_bound(type));
}

}  // namespace

std::vector<KernelCase> latent_cases() {
  std::vector<KernelCase> cases;
  for (const auto type : {at::kFloat, at::kBFloat16})
    cases.push_back({"latent/latent_plain",
                     type == at::kFloat ? "PlainLatentsInFloats" : "PlainLatentsInBFloats",
                     [type](BlockExecutor& on) { return error_of_plain_latents(on, type); },
                     {exchange_mistake(16), absent_thread(31)}});
  for (const bool pairs : {false, true})
    cases.push_back({"latent/latent_products",
                     pairs ? "LatentStepOfPairs" : "LatentStep",
                     [pairs](BlockExecutor& on) { return error_of_latent_step(on, pairs); },
                     {exchange_mistake(16), barrier_mistake(), lane_mistake(17)}});
  cases.push_back({"latent/latent_products",
                   "LatentValues",
                   [](BlockExecutor& on) { return error_of_latent_values(on, 3, 0); },
                   {barrier_mistake(), lane_mistake(2)}});
  cases.push_back({"latent/latent_products",
                   "LatentValuesOfManyRows",
                   [](BlockExecutor& on) { return error_of_latent_values(on, 20, 0); },
                   {lane_mistake(5)}});
  cases.push_back({"latent/latent_products",
                   "LatentValuesOfRecords",
                   [](BlockExecutor& on) { return error_of_latent_values(on, 2, 23); },
                   {exchange_mistake(8)}});
  return cases;
}

}  // namespace slime::kernels::cuda
