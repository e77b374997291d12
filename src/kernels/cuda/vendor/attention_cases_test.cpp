// Cases of src/kernels/cuda/attention without decode (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cpu/reference.h"
#include "kernels/cuda/attention/attend_last_rows_for_tests.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

const cpu::ReferenceDevice& rows_twin() {
  static const cpu::ReferenceDevice device;
  return device;
}

struct PlainShape {
  RotaryShape heads;
  at::ScalarType type = at::kFloat;
  TreeAttentionShape attention;
  bool has_sinks = false;
};

/// Rows of four sequences: a prompt, a row behind one, rows that go on in the middle of a page, and a prompt that ends in a
/// second tile. Slots that nobody has written hold no numbers.
double error_of_plain_attention(BlockExecutor& executor, decltype(attend_plain)& attend,
                                const PlainShape& shape) {
  struct Span {
    int64_t rows, keys;
  };
  const std::vector<Span> spans{{5, 5}, {1, 40}, {3, 19}, {18, 18}};
  const auto [heads, type, attention, has_sinks] = shape;
  const int64_t q = heads.num_heads, kv = heads.num_kv_heads, dim = heads.head_dim;
  const Tensor keys = random({9, kv, 16, dim}, type), values = random({9, kv, 16, dim}, type);
  const Tensor qkv = random({27, (q + 2 * kv) * dim}, type), sinks = random({q}, type);
  const Tensor order = at::randperm(9, at::TensorOptions(at::kInt));
  const Tensor out = unwritten({27, q * dim}, type);
  std::vector<int32_t> page_starts{0}, row_sequence;
  std::vector<int64_t> positions;
  std::vector<Tensor> expected;
  for (const Span& span : spans) {
    const int64_t first = page_starts.back(), count = (span.keys + 15) / 16;
    const auto sequence = [&](const Tensor& pages) {
      return pages.index_select(0, order.narrow(0, first, count))
          .transpose(1, 2)
          .reshape({16 * count, kv, dim})
          .narrow(0, 0, span.keys);
    };
    expected.push_back(attend_last_rows(
        qkv.narrow(0, static_cast<int64_t>(positions.size()), span.rows).narrow(1, 0, q * dim),
        sequence(keys), sequence(values), heads, attention, has_sinks ? sinks : Tensor()));
    for (int64_t i = span.keys - span.rows; i < span.keys; ++i) {
      positions.push_back(i);
      row_sequence.push_back(static_cast<int32_t>(page_starts.size()) - 1);
    }
    page_starts.push_back(static_cast<int32_t>(first + count));
    if (const int64_t behind = 16 * count - span.keys; behind > 0)
      for (const Tensor& pages : {keys, values})
        pages[order[first + count - 1].item<int64_t>()].narrow(1, 16 - behind, behind).fill_(NAN);
  }
  AttendCall call;
  call.number = to_number(type);
  call.paged.page_starts = page_starts.data();
  call.paged.pages = order.data_ptr<int32_t>();
  call.paged.keys = keys.data_ptr();
  call.paged.values = values.data_ptr();
  call.paged.num_sequences = 4;
  call.q = qkv.data_ptr();
  call.row_stride = qkv.size(1);
  call.out_TC = out.data_ptr();
  call.rows = 27;
  call.num_heads = static_cast<int>(q), call.num_kv_heads = static_cast<int>(kv);
  call.head_dim = static_cast<int>(dim);
  call.scale = static_cast<float>(attention.scale);
  call.cap = static_cast<float>(attention.cap);
  call.window = attention.window;
  call.sinks_N = has_sinks ? sinks.data_ptr() : nullptr;
  attend(call, positions.data(), row_sequence.data(), &executor);
  return error_of(out, at::cat(expected), rounding_bound(type));
}

double error_of_sinks(BlockExecutor& executor, bool is_base_2) {
  const int64_t rows = 5, heads = 3, dim = 40;
  const Tensor plain = random({rows, heads, dim}, at::kBFloat16), made = plain.clone();
  Tensor logsumexp = random({rows, heads});
  logsumexp[4][1] = INFINITY;  // stays as it is
  const Tensor sinks = random({heads}, at::kBFloat16),
               given = is_base_2 ? logsumexp / M_LN2 : logsumexp;
  AttendCall call;
  call.out_TC = made.data_ptr();
  call.rows = rows;
  call.num_heads = heads, call.head_dim = dim;
  call.sinks_N = sinks.data_ptr();
  apply_sinks(call, given.data_ptr<float>(), is_base_2, &executor);
  const Tensor share = (logsumexp - sinks.to(at::kFloat)).to(at::kDouble).sigmoid().unsqueeze(-1);
  return error_of(made, plain * share, rounding_bound(at::kBFloat16));
}

double error_of_gathered(BlockExecutor& executor, bool is_fp8) {
  const int64_t kv = 2, dim = 24;
  const auto cache = is_fp8 ? at::kFloat8_e4m3fn : at::kHalf;
  const Tensor keys = random({5, kv, 16, dim}).to(cache),
               values = random({5, kv, 16, dim}).to(cache);
  const Tensor pages = at::tensor({3, 0, 4}, at::kInt),
               made = unwritten({48, 2 * kv * dim}, at::kHalf);
  GatherCall call;
  call.number = Number::kFloat16;
  call.pages_P = pages.data_ptr<int32_t>();
  call.num_pages = 3;
  call.keys = keys.data_ptr(), call.values = values.data_ptr();
  call.num_kv_heads = kv, call.head_dim = dim;
  call.is_fp8 = is_fp8;
  call.rows_CX = made.data_ptr();
  gather_pages(call, &executor);
  const auto rows = [&](const Tensor& x) {
    return x.to(at::kHalf).index_select(0, pages).transpose(1, 2).reshape({48, kv * dim});
  };
  return error_of_bits(made, at::cat({rows(keys), rows(values)}, 1));
}

struct RotateShape {
  at::ScalarType type = at::kFloat;
  int64_t dim = 0;
  bool has_norms = true, has_float_norms = false, has_pages = false, is_fp8 = false;
};

/// Heads behind queries also in pages, where there are some.
double error_of_rotation(BlockExecutor& executor, const RotateShape& shape) {
  const auto [type, dim, has_norms, has_float_norms, has_pages, is_fp8] = shape;
  const int64_t rows = 5, q = 4, kv = 2;
  const Tensor qkv = random({rows, (q + 2 * kv) * dim}, type);
  const auto of_norms = has_float_norms ? at::kFloat : type;
  const Tensor q_norm = has_norms ? random({dim}, of_norms) : Tensor(),
               k_norm = has_norms ? random({dim}, of_norms) : Tensor();
  const Tensor angles = random({9, dim / 2}), cosine = angles.cos(), sine = angles.sin();
  const Tensor positions = at::tensor({int64_t{0}, int64_t{8}, int64_t{3}, int64_t{3}, int64_t{1}});
  const Tensor slots = at::tensor({17, 0, 31, 5, 18}, at::kInt);
  const auto cache = is_fp8 ? at::kFloat8_e4m3fn : type;
  const Tensor keys = at::zeros({2, kv, 16, dim}).to(cache),
               values = at::zeros({2, kv, 16, dim}).to(cache);
  const Tensor out = unwritten(qkv.sizes(), type);
  RotateCall call;
  call.number = to_number(type);
  call.qkv_TE = qkv.data_ptr(), call.out_TE = out.data_ptr();
  call.positions_T = positions.data_ptr<int64_t>();
  if (has_norms) call.q_norm_D = q_norm.data_ptr(), call.k_norm_D = k_norm.data_ptr();
  call.has_float_norms = has_float_norms;
  call.cos_PR = cosine.data_ptr<float>(), call.sin_PR = sine.data_ptr<float>();
  call.rows = rows;
  call.num_heads = q, call.num_kv_heads = kv, call.head_dim = static_cast<int>(dim);
  call.eps = 1e-6F;
  if (has_pages) {
    call.slot_T = slots.data_ptr<int32_t>();
    call.keys = keys.data_ptr(), call.values = values.data_ptr();
    call.is_fp8 = is_fp8;
  }
  norm_rotate(call, &executor);
  const auto wide = [](const Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; };
  const Tensor exact = rows_twin().norm_rotate(wide(qkv), positions, wide(q_norm), wide(k_norm),
                                               wide(cosine), wide(sine), {q, kv, dim, 1e-6});
  const int64_t whole = has_pages ? q : q + 2 * kv;
  double worst = error_of(out.narrow(1, 0, whole * dim), exact.narrow(1, 0, whole * dim),
                          rounding_bound(type));
  if (!has_pages) return worst;
  const auto in_pages = [&](const Tensor& pages) {  // [rows, K D]
    return pages.to(at::kFloat).transpose(1, 2).reshape({32, kv * dim}).index_select(0, slots);
  };
  // Half a step of a code is a sixteenth of the number.
  const double bound = is_fp8 ? 1.0 / 15 : rounding_bound(type);
  worst = std::max(worst, error_of(in_pages(keys), exact.narrow(1, q * dim, kv * dim), bound));
  return std::max(worst,
                  error_of(in_pages(values), exact.narrow(1, (q + kv) * dim, kv * dim), bound));
}

}  // namespace

std::vector<KernelCase> attention_cases() {
  std::vector<KernelCase> cases;
  const auto plain = [&](const char* what, const PlainShape& shape) {
    cases.push_back(
        {"attention/attend_plain",
         what,
         [shape](BlockExecutor& on) { return error_of_plain_attention(on, attend_plain, shape); },
         {exchange_mistake(16), exchange_mistake(2), absent_thread(3)}});
  };
  const auto by_tiles = [&](const char* what, const PlainShape& shape) {
    cases.push_back(
        {"attention/attend_rows",
         what,
         [shape](BlockExecutor& on) { return error_of_plain_attention(on, attend_rows, shape); },
         {exchange_mistake(2),
          barrier_mistake(),
          lane_mistake(18),
          {.wave_lanes = 32, .mistaken_lane = 5}}});
  };
  by_tiles("RowsByTiles", {.heads = {4, 2, 64, 0}, .type = at::kBFloat16, .attention = {0.2}});
  by_tiles("RowsByTilesWithAllTheyHave", {.heads = {3, 1, 96, 0},
                                          .type = at::kHalf,
                                          .attention = {.scale = 0.15, .window = 9, .cap = 0.8},
                                          .has_sinks = true});
  by_tiles("RowsByTilesOfLongHeads",
           {.heads = {2, 2, 256, 0}, .type = at::kBFloat16, .attention = {0.08}});
  plain("PlainAttention", {.heads = {6, 2, 40, 0}, .attention = {0.2}});
  plain("PlainAttentionWithAllItHas", {.heads = {4, 4, 256, 0},
                                       .type = at::kHalf,
                                       .attention = {.scale = 0.1, .window = 7, .cap = 0.8},
                                       .has_sinks = true});
  const auto rotates = [&](const char* what, const RotateShape& shape, unsigned distance) {
    cases.push_back(
        {"attention/norm_rotate",
         what,
         [shape](BlockExecutor& on) { return error_of_rotation(on, shape); },
         {shape.has_norms ? exchange_mistake(distance) : absent_thread(3), absent_thread(1)}});
  };
  rotates("RotationOfAnyHead", {.type = at::kFloat, .dim = 48}, 8);
  rotates("RotationWithoutNorms", {.type = at::kHalf, .dim = 20, .has_norms = false}, 0);
  rotates("RotationIntoPages", {.type = at::kFloat, .dim = 32, .has_pages = true}, 16);
  rotates("WideRotation", {.type = at::kBFloat16, .dim = 128, .has_float_norms = true}, 4);
  rotates("WideRotationIntoCodes",
          {.type = at::kBFloat16, .dim = 64, .has_pages = true, .is_fp8 = true}, 2);
  for (const bool is_base_2 : {false, true})
    cases.push_back({"attention/apply_sinks",
                     is_base_2 ? "SinksOfBase2" : "Sinks",
                     [is_base_2](BlockExecutor& on) { return error_of_sinks(on, is_base_2); },
                     {absent_thread(33)}});
  for (const bool is_fp8 : {false, true})
    cases.push_back({"attention/gather_pages",
                     is_fp8 ? "GatheredCodes" : "GatheredPages",
                     [is_fp8](BlockExecutor& on) { return error_of_gathered(on, is_fp8); },
                     {absent_thread(100)}});
  return cases;
}

}  // namespace slime::kernels::cuda
