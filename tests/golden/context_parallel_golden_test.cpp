// Golden cases about ranks that share sequences: rows, masks, routed experts, nucleus ids.

#include "context_parallel.h"
#include "golden.h"

namespace slime::golden {
namespace {

json::array to_json(const std::array<PositionRange, 2>& ranges) {
  json::array out;
  for (const PositionRange& range : ranges) out.push_back(json::array{range.begin, range.end});
  return out;
}

std::vector<TokenId> token_ids(const json::value& list) {
  const auto ids = integers(list);
  return {ids.begin(), ids.end()};
}

ContextLayout layout_of(const json::object& params) {
  ContextLayout layout;
  layout.cp = integer(params, "cp_size");
  layout.rank = integer(params, "cp_rank");
  layout.contiguous = flag(params, "allgather_cp");
  if (has(params, "tp_size"))
    layout.pad_multiple = integer(params, "tp_size") * integer(params, "data_pad_size_multiplier");
  return layout;
}

GOLDEN_TEST(ContextParallelSlicing, "context_parallel_slicing.json") {
  const auto& inputs = part(c, "inputs");
  const int64_t total = integer(inputs, "total_length");
  const int64_t response = integer(inputs, "response_length");
  const int64_t cp = integer(part(c, "params"), "cp_size");
  for (const auto& value : part(c, "expected").at("ranks").as_array()) {
    const auto& expected = value.as_object();
    const int64_t rank = integer(expected, "rank");
    const ZigzagShare share = zigzag_share(total, response, cp, rank);
    EXPECT_EQ(share.chunk_size, integer(expected, "chunk_size"));
    EXPECT_EQ(to_json(share.chunks), expected.at("chunks").as_array());
    EXPECT_EQ(to_json(share.logit_ranges), expected.at("logit_ranges").as_array());
    EXPECT_EQ(to_json(share.token_ranges), expected.at("token_ranges").as_array());
    const PackedShare packed =
        pack_share({token_ids(inputs.at("tokens"))}, {std::vector<uint8_t>(response, 1)},
                   {.cp = cp, .rank = rank});
    EXPECT_EQ(packed.tokens, token_ids(expected.at("local_tokens")));
    const auto owned = owned_response_tokens(total, response, cp, rank);
    EXPECT_EQ(owned, integers(expected.at("local_response_indices")));
    json::array values;
    for (const int64_t t : owned) values.push_back(inputs.at("response_values").at(t));
    EXPECT_EQ(values, expected.at("local_response_values").as_array());
  }
}

GOLDEN_TEST(PackedBatchLayout, "packed_batch_layout.json") {
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  std::vector<std::vector<TokenId>> sequences;
  std::vector<std::vector<uint8_t>> masks;
  for (const auto& tokens : inputs.at("tokens").as_array()) sequences.push_back(token_ids(tokens));
  for (const auto& bits : inputs.at("loss_masks").as_array()) {
    const auto numbers = integers(bits);
    masks.emplace_back(numbers.begin(), numbers.end());
  }
  const PackedShare share = pack_share(sequences, masks, layout_of(part(c, "params")));
  EXPECT_EQ(share.tokens, token_ids(expected.at("tokens")));
  EXPECT_EQ(std::vector<int64_t>(share.trained.begin(), share.trained.end()),
            integers(expected.at("full_loss_mask")));
  EXPECT_EQ(share.cu_seqlens, integers(expected.at("cu_seqlens")));
  EXPECT_EQ(share.max_seqlen, integer(expected, "max_seqlen"));
}

GOLDEN_TEST(RoutedExpertsAlignment, "routed_experts_alignment.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  RoutingLayout routing{.num_layers = integer(params, "num_layers"),
                        .topk = integer(params, "topk"),
                        .num_experts = integer(params, "num_experts")};
  if (flag(params, "sequence_parallel")) {
    routing.sequence_parallel = integer(params, "tp_size");
    routing.sequence_parallel_rank = integer(params, "tp_rank");
  }
  std::vector<std::vector<int32_t>> routed;
  for (const auto& sample : inputs.at("routed_experts").as_array())
    routed.push_back(token_ids(sample));
  EXPECT_EQ(
      align_routed_experts(routed, integers(inputs.at("token_counts")), routing, layout_of(params)),
      token_ids(part(c, "expected").at("rows")));
}

GOLDEN_TEST(TopPKeepRows, "top_p_keep_rows.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  std::vector<KeptIds> kept;
  const auto ids = partitions(inputs.at("top_p_token_ids"));
  const auto offsets = partitions(inputs.at("top_p_token_offsets"));
  for (std::size_t i = 0; i < ids.size(); ++i) kept.push_back({ids[i], offsets[i]});
  const auto lengths = integers(inputs.at("total_lengths"));
  const ContextLayout layout = layout_of(params);
  EXPECT_EQ(static_cast<int64_t>(local_rows(lengths, layout).size()),
            integer(params, "local_rows"));
  const int64_t shard = integer(params, "vocab_local");
  json::object rows;
  for (const auto& [row, row_ids] :
       kept_ids_of_rows(kept, lengths, layout, integer(params, "tp_rank") * shard, shard)) {
    rows[std::to_string(row)] = json::array(row_ids.begin(), row_ids.end());
  }
  EXPECT_EQ(rows, part(c, "expected").at("masked_rows").as_object());
}

}  // namespace
}  // namespace slime::golden
