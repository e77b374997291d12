#pragma once

/// Plans of decode attention, made on the host: sequences with one new row each, read once per step.
///
/// Bound by reading keys and values, so the plan balances that (split-KV): units of equal length,
/// one wave of thread blocks, each a list of segments (kernels/gpu/decode_segment.h) that may begin
/// and end in the middle of a sequence. Segments of a sequence that is split leave records (partial
/// softmaxes), and a second kernel merges those in the order of the keys. How many units are
/// launched, and how much room all lists take, depends on the batch alone: a recorded step needs
/// that.
///
/// Shared prompts: sequences whose page lists begin with the same pages (the samples of one prompt,
/// requests with one system prompt) read those pages once, as members of one segment; at most
/// kMostDecodeRows query heads share a segment. A sequence may be a member of two shared segments,
/// one after the other. The rule: m sequences that read n pages in k segments save (m - k) n pages
/// of each key-value head, and leave two records each where they left none. The record of a query
/// head is as long as a token's key and value, and is written and read; four query heads make that
/// a page per sequence, and the merge adds a memory latency twice. So sharing is chosen where it
/// saves more than six pages per sequence.
///
/// The plan depends on its arguments alone and each record has a fixed index, so a step repeats bit
/// for bit.

#include <span>
#include <vector>

#include "kernels/gpu/decode_segment.h"

namespace slime::kernels {

struct DecodeSequence {
  int64_t index = 0;               // among the sequences of the step
  int64_t row = 0;                 // its query row in the step
  int64_t num_keys = 0;            // all tokens, the new one included
  std::span<const int32_t> pages;  // the last one gets its new key
  int64_t pages_offset = 0;        // of the first page in PagedBatch::pages
  /// The last keys that are of this step: its own, and those of rows before it that verify drafts, which have
  /// the same pages.
  int64_t num_new_keys = 1;
};

struct DecodeOptions {
  int64_t group = 1;           // query heads per key-value head
  int64_t num_kv_heads = 1;    // each unit is launched once per key-value head
  int64_t blocks_at_once = 1;  // a wave: multiprocessors x decode_blocks_per_processor()
  bool shares_prompts = true;
  /// What a thread block reads at a time, of one segment: units end at a multiple.
  int64_t iteration_pages = kDecodeWarps;
};

/// Of latent attention: a thread block has 16 heads of a sequence, and a multiprocessor one thread block.
DecodeOptions latent_decode_options(int64_t num_heads, int64_t num_processors);

/// Room of the lists for a launch of `num_launched` sequences.
struct DecodeLimits {
  int64_t units = 0;
  int64_t segments = 0;
  int64_t members = 0;
  int64_t records = 0;
};
DecodeLimits decode_limits(int64_t num_launched, const DecodeOptions& options);

struct DecodePlan {
  DecodeLimits room;                 // the lists below are no longer than this
  std::vector<int32_t> unit_starts;  // [units + 1] segments before unit u
  std::vector<DecodeSegment> segments;
  std::vector<DecodeMember> members;
  std::vector<int32_t> record_starts;  // [launched + 1] records before a sequence of the step
};

/// `num_launched`: sequences of the step, as launched, those that are not decoded included.
/// options.group <= kMostDecodeRows.
DecodePlan plan_decode(std::span<const DecodeSequence> sequences, int64_t num_launched,
                       const DecodeOptions& options);

}  // namespace slime::kernels
