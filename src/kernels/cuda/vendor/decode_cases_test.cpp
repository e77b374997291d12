// Cases of attention/attend_decode and the merge of its records (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cpu/reference.h"
#include "kernels/cuda/attention/attend_last_rows_for_tests.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"
#include "kernels/gpu/decode_units.h"

namespace slime::kernels::cuda {
namespace {

struct DecodeShape {
  at::ScalarType type = at::kBFloat16;
  int64_t q = 4, kv = 2, dim = 64;
  bool is_fp8 = false, rotates = false, has_sinks = false;
  TreeAttentionShape attention{0.15};
  std::vector<int64_t> num_keys{40, 1, 130, 16};
  int64_t shared_pages = 0;    // that all sequences begin with
  int64_t blocks_at_once = 8;  // more: sequences are in several segments
};

double error_of_decode(BlockExecutor& executor, const DecodeShape& shape) {
  const auto& [type, q, kv, dim, is_fp8, rotates, has_sinks, attention, num_keys, shared_pages,
               blocks_at_once] = shape;
  const auto sequences = static_cast<int64_t>(num_keys.size());
  const RotaryShape heads{q, kv, dim, 1e-6};
  const auto cache = is_fp8 ? at::kFloat8_e4m3fn : type;
  const auto cached = [&](const Tensor& x) { return x.to(cache).to(at::kDouble); };
  int64_t num_pages = shared_pages;
  for (const int64_t keys : num_keys) num_pages += (keys + 15) / 16;
  const Tensor keys = random({num_pages, kv, 16, dim}).to(cache);
  const Tensor values = random({num_pages, kv, 16, dim}).to(cache);
  const Tensor order = at::randperm(num_pages, at::TensorOptions(at::kInt));
  const Tensor qkv = random({sequences, (q + 2 * kv) * dim}, type), sinks = random({q}, type);
  const Tensor norm = random({dim}, type), angles = random({150, dim / 2});
  const Tensor cosine = angles.cos(), sine = angles.sin();
  std::vector<int64_t> positions;
  for (const int64_t count : num_keys) positions.push_back(count - 1);
  const Tensor position_T = at::tensor(positions);
  const auto wide = [](const Tensor& x) { return x.to(at::kDouble); };
  static const cpu::ReferenceDevice twin;
  const Tensor made = rotates ? twin.norm_rotate(wide(qkv), position_T, wide(norm), wide(norm),
                                                 wide(cosine), wide(sine), heads)
                              : wide(qkv);

  std::vector<int32_t> pages, page_starts{0}, query_starts{0};
  std::vector<Tensor> expected;
  int64_t own = shared_pages;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t count = (num_keys[s] + 15) / 16;
    for (int64_t p = 0; p < count; ++p)
      pages.push_back(order[p < shared_pages ? p : own++].item<int32_t>());
    const Tensor ids = at::tensor(
        at::ArrayRef<int32_t>(pages.data() + page_starts.back(), static_cast<size_t>(count)),
        at::kInt);
    const auto all = [&](const Tensor& old, int64_t first_head) {
      Tensor rows =
          old.to(at::kDouble).index_select(0, ids).transpose(1, 2).reshape({16 * count, kv, dim});
      rows = rows.narrow(0, 0, num_keys[s]).clone();
      // Where it rotates, the step's own key comes now; otherwise it lies in its page already.
      if (rotates)
        rows[num_keys[s] - 1].copy_(
            cached(made[s].narrow(0, first_head * dim, kv * dim)).view({kv, dim}));
      return rows;
    };
    expected.push_back(attend_last_rows(made.narrow(0, s, 1).narrow(1, 0, q * dim).to(type),
                                        all(keys, q), all(values, q + kv), heads, attention,
                                        has_sinks ? sinks : Tensor()));
    page_starts.push_back(static_cast<int32_t>(pages.size()));
    query_starts.push_back(static_cast<int32_t>(s) + 1);
  }
  std::vector<DecodeSequence> planned;
  for (int64_t s = 0; s < sequences; ++s)
    planned.push_back({s,
                       s,
                       num_keys[s],
                       {pages.data() + page_starts[s], pages.data() + page_starts[s + 1]},
                       page_starts[s]});
  const DecodePlan plan = plan_decode(planned, sequences, {q / kv, kv, blocks_at_once});
  const Tensor sums = unwritten({plan.room.records + 1, q, dim});
  const Tensor weights = unwritten({plan.room.records + 1, q, 2});
  DecodeArrays arrays;
  arrays.num_units = static_cast<int>(plan.room.units);
  arrays.unit_starts = plan.unit_starts.data();
  arrays.segments = plan.segments.data();
  arrays.members = plan.members.data();
  arrays.record_starts = plan.record_starts.data();
  arrays.record_sums = sums.data_ptr<float>();
  arrays.record_weights = reinterpret_cast<float2*>(weights.data_ptr<float>());

  const Tensor out = unwritten({sequences, q * dim}, type);
  AttendCall call;
  call.number = to_number(type);
  call.paged.query_starts = query_starts.data();
  call.paged.page_starts = page_starts.data();
  call.paged.pages = pages.data();
  call.paged.keys = keys.data_ptr(), call.paged.values = values.data_ptr();
  call.paged.num_sequences = static_cast<int>(sequences);
  call.paged.is_fp8 = is_fp8;
  call.q = qkv.data_ptr();
  call.row_stride = qkv.size(1);
  call.out_TC = out.data_ptr();
  call.rows = sequences;
  call.num_heads = static_cast<int>(q), call.num_kv_heads = static_cast<int>(kv);
  call.head_dim = static_cast<int>(dim);
  call.scale = static_cast<float>(attention.scale);
  call.cap = static_cast<float>(attention.cap), call.window = attention.window;
  call.sinks_N = has_sinks ? sinks.data_ptr() : nullptr;
  std::vector<int32_t> last(sequences), slots(sequences);
  for (int64_t s = 0; s < sequences; ++s) {
    last[s] = static_cast<int32_t>((num_keys[s] - 1) % 16 + 1);
    slots[s] = pages[page_starts[s + 1] - 1] * 16 + last[s] - 1;
  }
  call.paged.last_page_tokens = last.data();
  RotateCall rotate;
  rotate.number = call.number;
  rotate.qkv_TE = qkv.data_ptr();
  rotate.positions_T = position_T.data_ptr<int64_t>();
  rotate.q_norm_D = norm.data_ptr(), rotate.k_norm_D = norm.data_ptr();
  rotate.cos_PR = cosine.data_ptr<float>(), rotate.sin_PR = sine.data_ptr<float>();
  rotate.rows = sequences;
  rotate.num_heads = call.num_heads, rotate.num_kv_heads = call.num_kv_heads;
  rotate.head_dim = call.head_dim;
  rotate.eps = 1e-6F;
  rotate.slot_T = slots.data();
  rotate.keys = keys.data_ptr(), rotate.values = values.data_ptr();
  rotate.is_fp8 = is_fp8;
  attend_decode(call, arrays, rotates ? &rotate : nullptr, &executor);
  // Probabilities are rounded too, to the precision of the rows or, with codes, to float16.
  return error_of(out, at::cat(expected), type == at::kHalf ? 1.0 / 512 : 1.0 / 100);
}

}  // namespace

std::vector<KernelCase> decode_cases() {
  std::vector<KernelCase> cases;
  const auto decodes = [&](const char* file, const char* what, const DecodeShape& shape,
                           std::vector<BlockExecutor::Options> mistakes) {
    cases.push_back({file, what, [shape](BlockExecutor& on) { return error_of_decode(on, shape); },
                     std::move(mistakes)});
  };
  // Distances 1 and 2: the largest score of a row; 16: the largest of the records.
  decodes("attention/attend_decode", "Decode", {.num_keys = {40, 1, 61, 16}},
          {exchange_mistake(2), barrier_mistake(), lane_mistake(4), absent_thread(5)});
  decodes("attention/attend_decode", "DecodeOfCodesThatRotates",
          {.q = 8, .kv = 1, .dim = 128, .is_fp8 = true, .rotates = true, .num_keys = {17, 64}},
          {exchange_mistake(4), absent_thread(64)});
  decodes("attention/attend_decode", "DecodeInHalvesWithAllItHas",
          {.type = at::kHalf,
           .dim = 128,
           .rotates = true,
           .has_sinks = true,
           .attention = {.scale = 0.1, .window = 33, .cap = 1.5},
           .num_keys = {50, 20}},
          {exchange_mistake(2), exchange_mistake(4)});
  decodes("attention/merge_records", "DecodeOfASharedPromptInRecords",
          {.rotates = true, .num_keys = {140, 150, 131}, .shared_pages = 8, .blocks_at_once = 24},
          {exchange_mistake(16), absent_thread(20)});
  return cases;
}

}  // namespace slime::kernels::cuda
