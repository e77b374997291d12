#include "kernels/cuda/attention/packed_attention.h"

#include <ATen/ATen.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/torch_side.h"
#include "kernels/gpu/ordered_levels.h"

namespace slime::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;

/// On Hopper heads may be longer, backward too since cuDNN 9.13.
int64_t most_head_dim() {
  static const bool has_long = compute_capability_major() == 9 && cudnnGetVersion() >= 91300;
  return has_long ? 256 : 128;
}

constexpr int64_t kMaxWideHeadDim = 256;
constexpr std::size_t kRememberedLevels = 64;
/// Powers of two, which launches are made of (kernels/gpu/ordered_levels.h): scratch is by what is planned.
constexpr PlanRounding kOrderedRounding{1, 1, 1};

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStats,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kQLength,
  kKLength,
  kQOffset,
  kKOffset,
  kOutOffset,
  kStatsOffset,
};

void check_dnn(fe::error_t status, const char* what) {
  if (status.is_bad())
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, status.get_message()));
}

/// `count` rounded up to a multiple of bit_floor(count) / `fractions` (a power of two), or of
/// `least` where that is more. A plan takes a tenth of a second to make; so a run whose
/// micro-batches all differ needs few of them.
int64_t rounded_up(int64_t count, int64_t fractions, int64_t least) {
  const auto step = std::max<int64_t>(
      least, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count))) / fractions);
  return round_up(count, step);
}

int64_t longest(const AttentionLevel& level, bool of_keys) {
  int64_t most = 0;
  for (const AttentionPair& pair : level.pairs)
    most =
        std::max(most, of_keys ? pair.key_end - pair.key_begin : pair.query_end - pair.query_begin);
  return most;
}

int64_t planned_rows(const AttentionLevel& level, bool of_keys, const PlanRounding& rounding) {
  return rounded_up(longest(level, of_keys), rounding.row_fractions, 128);
}

int64_t planned_pairs(const AttentionLevel& level, const PlanRounding& rounding) {
  return rounded_up(static_cast<int64_t>(level.pairs.size()), rounding.pair_fractions,
                    rounding.least_pairs);
}

}  // namespace

struct PackedAttention::Graph {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
};

/// Lengths and element offsets of a level's pairs, and of empty ones behind them, on the device.
struct PackedAttention::Tables {
  std::vector<AttentionPair> pairs;
  Strides strides;
  int64_t num_heads = 0;                                      // of queries
  Tensor query_length_B, key_length_B;                        // int32
  Tensor query_offset, key_offset, out_offset, stats_offset;  // int32 [B + 1]
};

PackedAttention::PackedAttention(const PlanRounding& rounding) : rounding_(rounding) {
  cudnnHandle_t handle = nullptr;
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) throw std::runtime_error("cudnnCreate failed");
  handle_ = handle;
}

PackedAttention::~PackedAttention() { cudnnDestroy(static_cast<cudnnHandle_t>(handle_)); }

bool PackedAttention::supports(at::ScalarType type, const RotaryShape& heads) {
  return (type == at::kBFloat16 || type == at::kHalf) && heads.head_dim % 8 == 0 &&
         heads.head_dim <= most_head_dim();
}

bool PackedAttention::may_have_kernels(at::ScalarType type, const RotaryShape& heads) {
  return (type == at::kBFloat16 || type == at::kHalf) && heads.head_dim % 8 == 0 &&
         heads.head_dim <= kMaxWideHeadDim;
}

bool PackedAttention::has_kernels(at::ScalarType type, const RotaryShape& heads,
                                  const TreeAttentionShape& shape) {
  if (supports(type, heads)) return true;
  return may_have_kernels(type, heads) && has_plans(Direction::kForward, type, heads, shape) &&
         has_plans(Direction::kBackward, type, heads, shape);
}

bool PackedAttention::has_ordered_backward(at::ScalarType type, const RotaryShape& heads,
                                           const TreeAttentionShape& shape) {
  return may_have_kernels(type, heads) &&
         has_plans(Direction::kOrderedBackward, type, heads, shape);
}

bool PackedAttention::has_plans(Direction direction, at::ScalarType type, const RotaryShape& heads,
                                const TreeAttentionShape& shape) {
  const Key causal = smallest_key(direction, type, true, heads, shape);
  const auto [found, is_new] = has_plans_.try_emplace(causal, false);
  if (!is_new) return found->second;
  try {
    graph_for(causal);
    graph_for(smallest_key(direction, type, false, heads, {shape.scale, 0}));
    found->second = true;
  } catch (const std::runtime_error&) {
    // Then it is computed by plain products.
  }
  return found->second;
}

PackedAttention::Key PackedAttention::smallest_key(Direction direction, at::ScalarType type,
                                                   bool is_causal, const RotaryShape& heads,
                                                   const TreeAttentionShape& shape) const {
  const int64_t out = heads.num_heads * heads.head_dim,
                in = out + 2 * heads.num_kv_heads * heads.head_dim;
  return key_for(direction, {in, in, out}, type, {{{0, 128, 0, 128}}, is_causal}, heads, shape);
}

PackedAttention::Key PackedAttention::key_for(Direction direction, const Strides& strides,
                                              at::ScalarType type, const AttentionLevel& level,
                                              const RotaryShape& heads,
                                              const TreeAttentionShape& shape) const {
  const PlanRounding& rounding =
      direction == Direction::kOrderedBackward ? kOrderedRounding : rounding_;
  return {direction,
          type,
          planned_pairs(level, rounding),
          planned_rows(level, false, rounding),
          planned_rows(level, true, rounding),
          heads.num_heads,
          heads.num_kv_heads,
          heads.head_dim,
          level.causal,
          shape.window,
          strides.query,
          strides.key,
          strides.out,
          shape.scale};
}

PackedAttention::Graph& PackedAttention::graph_for(const Key& key) {
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) return *found->second;
  const auto [direction, type, pairs, query_rows, key_rows, num_heads, num_kv_heads, dim, causal,
              window, in_stride, key_stride, out_stride, scale] = key;
  auto built = std::make_unique<Graph>();
  fe::graph::Graph& graph = built->graph;
  graph.set_io_data_type(type == at::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);

  const int64_t value_dim = out_stride / num_heads;
  const auto per_pair = [&](Uid uid, int64_t count) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_uid(uid)
                            .set_dim({count, 1, 1, 1})
                            .set_stride({1, 1, 1, 1})
                            .set_data_type(fe::DataType_t::INT32));
  };
  const auto query_length = per_pair(kQLength, pairs), key_length = per_pair(kKLength, pairs);
  const auto query_offset = per_pair(kQOffset, pairs + 1),
             key_offset = per_pair(kKOffset, pairs + 1),
             out_offset = per_pair(kOutOffset, pairs + 1),
             stats_offset = per_pair(kStatsOffset, pairs + 1);
  const auto shape = [&](fe::graph::Tensor_attributes attributes, Uid uid, int64_t heads,
                         int64_t rows, int64_t size, int64_t stride, const auto& offset) {
    return attributes.set_uid(uid)
        .set_dim({pairs, heads, rows, size})
        .set_stride({rows * stride, size, stride, 1})
        .set_ragged_offset(offset);
  };
  const auto input = [&](Uid uid, int64_t heads, int64_t rows, int64_t size, int64_t stride,
                         const auto& offset) {
    return graph.tensor(
        shape(fe::graph::Tensor_attributes(), uid, heads, rows, size, stride, offset));
  };
  const auto output = [&](const std::shared_ptr<fe::graph::Tensor_attributes>& tensor, Uid uid,
                          int64_t heads, int64_t rows, int64_t size, int64_t stride,
                          const auto& offset) {
    *tensor = shape(*tensor, uid, heads, rows, size, stride, offset);
    tensor->set_output(true);
  };
  const auto statistics = [&](fe::graph::Tensor_attributes attributes) {
    return attributes.set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({pairs, num_heads, query_rows, 1})
        .set_stride({query_rows * num_heads, 1, num_heads, 1})
        .set_ragged_offset(stats_offset);
  };
  const auto q = input(kQ, num_heads, query_rows, dim, in_stride, query_offset);
  const auto k = input(kK, num_kv_heads, key_rows, dim, key_stride, key_offset);
  const auto v = input(kV, num_kv_heads, key_rows, value_dim, key_stride, key_offset);
  const auto attend = [&](auto options) {
    options.set_attn_scale(static_cast<float>(scale))
        .set_padding_mask(true)
        .set_seq_len_q(query_length)
        .set_seq_len_kv(key_length);
    if (causal) options.set_causal_mask(true);
    if (window > 0) options.set_diagonal_band_left_bound(static_cast<int>(window));
    return options;
  };
  if (direction == Direction::kForward) {
    auto options = attend(fe::graph::SDPA_attributes().set_name("forward"));
    options.set_generate_stats(true);
    auto [out, stats] = graph.sdpa(q, k, v, options);
    output(out, kOut, num_heads, query_rows, value_dim, out_stride, out_offset);
    *stats = statistics(*stats);
    stats->set_output(true);
  } else {
    const auto out = input(kOut, num_heads, query_rows, value_dim, out_stride, out_offset);
    const auto dout = input(kDOut, num_heads, query_rows, value_dim, out_stride, out_offset);
    const auto stats = graph.tensor(statistics(fe::graph::Tensor_attributes()));
    auto options = attend(fe::graph::SDPA_backward_attributes().set_name("backward"));
    options.set_deterministic_algorithm(direction == Direction::kOrderedBackward);
    auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, out, dout, stats, options);
    output(dq, kDQ, num_heads, query_rows, dim, in_stride, query_offset);
    output(dk, kDK, num_kv_heads, key_rows, dim, key_stride, key_offset);
    output(dv, kDV, num_kv_heads, key_rows, value_dim, key_stride, key_offset);
  }
  auto* handle = static_cast<cudnnHandle_t>(handle_);
  check_dnn(graph.validate(), "validate");
  check_dnn(graph.build_operation_graph(handle), "build_operation_graph");
  check_dnn(graph.create_execution_plans({fe::HeurMode_t::A}), "create_execution_plans");
  check_dnn(graph.check_support(handle), "no kernel for this attention");
  check_dnn(graph.build_plans(handle), "build_plans");
  built->workspace_bytes = graph.get_workspace_size();
  return *graphs_.emplace(key, std::move(built)).first->second;
}

const PackedAttention::Tables& PackedAttention::tables_for(const AttentionLevel& level,
                                                           const RotaryShape& heads,
                                                           const Strides& strides,
                                                           const Tensor& like) {
  for (const auto& known : tables_) {
    if (known->strides == strides && known->num_heads == heads.num_heads &&
        known->pairs == level.pairs)
      return *known;
  }
  const auto count = static_cast<int64_t>(level.pairs.size()),
             planned =
                 std::max(planned_pairs(level, rounding_), planned_pairs(level, kOrderedRounding));
  // Rows of one host tensor, so that one copy takes all: 2 of lengths, 4 of offsets.
  const Tensor host = at::zeros({6, planned + 1}, at::TensorOptions(at::kInt).pinned_memory(true));
  auto table = host.accessor<int32_t, 2>();
  const auto element = [](int64_t offset) {
    check(offset <= INT32_MAX, "a micro-batch on the GPU has fewer than 2^31 numbers a tensor");
    return static_cast<int32_t>(offset);
  };
  for (int64_t i = 0; i < count; ++i) {
    const AttentionPair& pair = level.pairs[static_cast<std::size_t>(i)];
    table[0][i] = static_cast<int32_t>(pair.query_end - pair.query_begin);
    table[1][i] = static_cast<int32_t>(pair.key_end - pair.key_begin);
    for (const int64_t end : {int64_t{0}, int64_t{1}}) {  // the last entry is an end
      if (end == 1 && i + 1 < count) continue;
      const int64_t query = end == 0 ? pair.query_begin : pair.query_end;
      const int64_t key = end == 0 ? pair.key_begin : pair.key_end;
      table[2][i + end] = element(query * strides.query);
      table[3][i + end] = element(key * strides.key);
      table[4][i + end] = element(query * strides.out);
      table[5][i + end] = element(query * heads.num_heads);
    }
  }
  for (int64_t i = count + 1; i <= planned; ++i)
    for (int offset = 2; offset < 6; ++offset) table[offset][i] = table[offset][count];
  const Tensor device = host.to(like.device(), at::kInt, /*non_blocking=*/true);
  auto tables = std::make_unique<Tables>();
  tables->pairs = level.pairs;
  tables->strides = strides;
  tables->num_heads = heads.num_heads;
  tables->query_length_B = device[0].narrow(0, 0, planned);
  tables->key_length_B = device[1].narrow(0, 0, planned);
  tables->query_offset = device[2];
  tables->key_offset = device[3];
  tables->out_offset = device[4];
  tables->stats_offset = device[5];
  if (tables_.size() == kRememberedLevels) tables_.erase(tables_.begin());
  return *tables_.emplace_back(std::move(tables));
}

namespace {

using Pack = std::unordered_map<int64_t, void*>;

void* at_heads(const Tensor& heads_TE, int64_t first_head, int64_t dim) {
  return static_cast<char*>(heads_TE.data_ptr()) + first_head * dim * heads_TE.element_size();
}

}  // namespace

void PackedAttention::forward(const Tensor& heads_TE, const Tensor& keys_CX,
                              const AttentionLevel& level, const RotaryShape& heads,
                              const TreeAttentionShape& shape, Tensor out_TC, Tensor logsumexp_TN) {
  const int64_t dim = heads.head_dim;
  const bool has_own_keys = keys_CX.defined();
  const Tensor& keys = has_own_keys ? keys_CX : heads_TE;
  const Strides strides{heads_TE.size(1), keys.size(1), out_TC.size(1)};
  const Tables& tables = tables_for(level, heads, strides, heads_TE);
  Graph& graph =
      graph_for(key_for(Direction::kForward, strides, heads_TE.scalar_type(), level, heads, shape));
  const int64_t first_key = has_own_keys ? 0 : heads.num_heads;
  Pack pack{{kQ, heads_TE.data_ptr()},
            {kK, at_heads(keys, first_key, dim)},
            {kV, at_heads(keys, first_key + heads.num_kv_heads, dim)},
            {kOut, out_TC.data_ptr()},
            {kStats, logsumexp_TN.data_ptr()},
            {kQLength, tables.query_length_B.data_ptr()},
            {kKLength, tables.key_length_B.data_ptr()},
            {kQOffset, tables.query_offset.data_ptr()},
            {kKOffset, tables.key_offset.data_ptr()},
            {kOutOffset, tables.out_offset.data_ptr()},
            {kStatsOffset, tables.stats_offset.data_ptr()}};
  const Tensor workspace = at::empty({graph.workspace_bytes}, heads_TE.options().dtype(at::kByte));
  auto* handle = static_cast<cudnnHandle_t>(handle_);
  cudnnSetStream(handle, current_stream(heads_TE.get_device()));
  check_dnn(graph.graph.execute(handle, pack, workspace.data_ptr()), "attention");
}

void PackedAttention::backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                               const Tensor& logsumexp_TN, const AttentionLevel& level,
                               const RotaryShape& heads, const TreeAttentionShape& shape,
                               Tensor dheads_TE) {
  const auto launch = [&](Direction direction, const AttentionLevel& of) {
    launch_backward(direction, dy_TC, y_TC, heads_TE, logsumexp_TN, of, heads, shape, dheads_TE);
  };
  if (!shape.ordered_backward) return launch(Direction::kBackward, level);
  for (const AttentionLevel& part : ordered_launches(level, heads.num_heads))
    launch(Direction::kOrderedBackward, part);
}

void PackedAttention::launch_backward(Direction direction, const Tensor& dy_TC, const Tensor& y_TC,
                                      const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                      const AttentionLevel& level, const RotaryShape& heads,
                                      const TreeAttentionShape& shape, const Tensor& dheads_TE) {
  const int64_t dim = heads.head_dim;
  const Strides strides{heads_TE.size(1), heads_TE.size(1), y_TC.size(1)};
  const Tables& tables = tables_for(level, heads, strides, heads_TE);
  Graph& graph =
      graph_for(key_for(direction, strides, heads_TE.scalar_type(), level, heads, shape));
  const int64_t first_value = heads.num_heads + heads.num_kv_heads;
  Pack pack{{kQ, heads_TE.data_ptr()},
            {kK, at_heads(heads_TE, heads.num_heads, dim)},
            {kV, at_heads(heads_TE, first_value, dim)},
            {kOut, y_TC.data_ptr()},
            {kDOut, dy_TC.data_ptr()},
            {kStats, logsumexp_TN.data_ptr()},
            {kDQ, dheads_TE.data_ptr()},
            {kDK, at_heads(dheads_TE, heads.num_heads, dim)},
            {kDV, at_heads(dheads_TE, first_value, dim)},
            {kQLength, tables.query_length_B.data_ptr()},
            {kKLength, tables.key_length_B.data_ptr()},
            {kQOffset, tables.query_offset.data_ptr()},
            {kKOffset, tables.key_offset.data_ptr()},
            {kOutOffset, tables.out_offset.data_ptr()},
            {kStatsOffset, tables.stats_offset.data_ptr()}};
  const Tensor workspace = at::empty({graph.workspace_bytes}, heads_TE.options().dtype(at::kByte));
  auto* handle = static_cast<cudnnHandle_t>(handle_);
  cudnnSetStream(handle, current_stream(heads_TE.get_device()));
  check_dnn(graph.graph.execute(handle, pack, workspace.data_ptr()), "attention backward");
}

}  // namespace slime::kernels::cuda
