#pragma once

/// The rules of context parallelism as the original has them, checked against its numbers: the
/// slow, obvious form that the trainer's own is compared with.
///
/// Which rows of a packed micro-batch a rank holds when ranks share sequences (context parallelism,
/// spec section 11), and how columns that travel with tokens follow them: masks, routed experts
/// (section 14), the ids of the nucleus (section 4.4). Pure functions of lengths.
///
/// Zigzag, the default: a sequence of T tokens is padded to 2 cp chunks of c = ceil(T / 2 cp); rank
/// k holds chunks k and 2 cp - 1 - k, so that causal attention costs all ranks the same. With T = 8
/// and cp = 2: rank 0 holds 0 1 | 6 7, rank 1 holds 2 3 | 4 5.
///
/// Contiguous (Megatron: allgather-cp): all sequences end to end, padded, cut into cp equal pieces.
///
/// The logits of position p score the token p + 1: a rank owns response token t of a sequence with
/// prompt length P iff it holds position P + t - 1.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/sample.h"

namespace slime::golden {

/// Half open; {0, 0} when empty.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct ZigzagShare {
  int64_t chunk_size = 0;
  std::array<PositionRange, 2> chunks;        // positions held, padding included
  std::array<PositionRange, 2> logit_ranges;  // those whose logits score a response token
  std::array<PositionRange, 2> token_ranges;  // the tokens they score: the same plus 1
};

ZigzagShare zigzag_share(int64_t total_length, int64_t response_length, int64_t cp, int64_t rank);

/// Response tokens the rank owns, ascending per chunk.
std::vector<int64_t> owned_response_tokens(int64_t total_length, int64_t response_length,
                                           int64_t cp, int64_t rank);

struct ContextLayout {
  int64_t cp = 1;
  int64_t rank = 0;
  int64_t pad_multiple =
      1;  // of a rank's rows: tensor-parallel size times data-pad-size-multiplier
  bool contiguous = false;
};

/// Where a row of the packed micro-batch comes from. Padding of a sequence has a position beyond
/// it; padding of the tail has sequence -1 and counts from 0.
struct PackedRow {
  int64_t sequence = -1;
  int64_t position = 0;
};

/// The rank's rows of these sequences, in order.
std::vector<PackedRow> local_rows(std::span<const int64_t> lengths, const ContextLayout& layout);

struct PackedShare {
  std::vector<TokenId> tokens;      // 0 where padded
  std::vector<uint8_t> trained;     // 1 where the row's logits score a trained token
  std::vector<int64_t> cu_seqlens;  // of whole sequences, the padded tail being one more
  int64_t max_seqlen = 0;
};

/// `masks[i]` has one entry per response token of sequence i.
PackedShare pack_share(const std::vector<std::vector<TokenId>>& sequences,
                       const std::vector<std::vector<uint8_t>>& masks, const ContextLayout& layout);

/// Expert ids as the router of one rank replays them.
struct RoutingLayout {
  int64_t num_layers = 0;
  int64_t topk = 0;
  int64_t num_experts = 0;
  int64_t sequence_parallel = 1;  // tensor-parallel ranks that share the rows
  int64_t sequence_parallel_rank = 0;
};

/// routed[i]: [lengths[i] - 1][num_layers][topk] flat, one row per token but the last. Rows without
/// a record get filler ids that spread over the experts: element number mod num_experts, counted
/// anew for each run of padding. -> [rows][num_layers][topk] flat.
std::vector<int32_t> align_routed_experts(const std::vector<std::vector<int32_t>>& routed,
                                          std::span<const int64_t> lengths,
                                          const RoutingLayout& routing,
                                          const ContextLayout& layout);

/// Ids of the nucleus of one response: token t kept ids[offsets[t] .. offsets[t + 1]).
struct KeptIds {
  std::vector<int64_t> ids;
  std::vector<int64_t> offsets;  // one more than response tokens
};

/// By row of the rank: the kept ids among those of this vocabulary shard, counted from its first.
/// Rows that score no response token are absent: all ids stay there.
std::map<int64_t, std::vector<int64_t>> kept_ids_of_rows(std::span<const KeptIds> kept,
                                                         std::span<const int64_t> lengths,
                                                         const ContextLayout& layout,
                                                         int64_t first_id, int64_t num_ids);

}  // namespace slime::golden
