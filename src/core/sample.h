#pragma once

/// The records that travel the loop: a Prompt becomes a Group of Samples; finished groups become a
/// TrainBatch.
///
/// Tokens are the truth, text is a view of them. One sample, half-way through its life:
///
///   Sample{ordinal = 17, group = 4, prompt_length = 3,
///          tokens = {12, 7, 99,  42, 42, 2},
///          log_probs = {-0.1, -0.7, -0.02},
///          versions = {{5, 3}}, status = kCompleted, reward = 1.0}
///
/// has three response tokens, all made by weight version 5. Field meanings follow reference
/// "Sample" of the original (slime/utils/types.py); where it kept one list entry per call we keep
/// one run per weight version.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/draft_counts.h"
#include "core/json.h"
#include "core/token_span.h"

namespace slime {

/// Counts weight updates; 0 is the loaded checkpoint. Every generated token names the version that
/// made it.
using WeightVersion = int64_t;

enum class Status { kPending, kCompleted, kTruncated, kAborted, kFailed };

/// "pending", "completed", "truncated", "aborted", "failed": the words of the original's dumps.
std::string_view to_string(Status status);
std::optional<Status> status_from_string(std::string_view text);

/// One row of the data set, ready to be sent to the engine.
struct Prompt {
  int64_t ordinal = 0;  // global and monotonic, across epochs and restarts: the group's identity
  std::string text;     // rendered by the chat template, or the row's own string
  json::value source;   // the row's prompt as it stood: a string or a list of messages
  std::vector<TokenId> tokens;   // of `text`, no special tokens added
  std::vector<MediaSpan> media;  // of `tokens`; empty: all are text
  json::value label;             // null, string or number
  json::object metadata;         // the row's metadata, plus tools when the row has them
};

/// How many consecutive response tokens one weight version made.
struct VersionRun {
  WeightVersion version = 0;
  int64_t num_tokens = 0;
  bool operator==(const VersionRun&) const = default;
};

struct Sample {
  int64_t ordinal = 0;                // global and monotonic: prompt ordinal * n + index in group
  int64_t group = 0;                  // the prompt's ordinal
  int64_t index_in_group = 0;         // 0 .. n - 1
  std::optional<int64_t> rollout_id;  // samples of one rollout execution share it; unset: its own
  int64_t prompt_length = 0;          // the first prompt_length tokens are the prompt
  std::vector<TokenId> tokens;        // prompt and response
  std::vector<MediaSpan> media;       // of the tokens; empty: all are text
  std::string prompt;                 // text of the prompt
  std::string response;               // text of the response
  json::value label;
  json::object metadata;
  std::string custom_rm_path;  // the function of the user's that scores it; empty: the run's
  /// Per response token, of the distribution it was sampled from; of tokens that a grammar bound, of what
  /// it would have been without, which is the one that training computes; 0 on tool tokens.
  std::vector<float> log_probs;
  std::vector<uint8_t> constrained;      // per response token, 1 = a grammar bound it; empty = none
  std::vector<float> teacher_log_probs;  // per response token, of a teacher elsewhere; empty: none
  std::vector<uint8_t> loss_mask;        // per response token, 1 = trained; empty = all ones
  /// Of the response's tokens, run by run (core/version_runs.h); empty: not known.
  std::vector<VersionRun> versions;
  Status status = Status::kPending;
  std::string failure;  // why, when status is kFailed
  json::value reward;   // null until scored; a number, or an object read through the reward key
  bool remove_sample = false;  // counted, but its mask is all zeros
  /// What a user's function set and nothing here reads, by the field names of the original's Sample;
  /// attributes of its own are in "extra".
  json::object user_fields;
  /// The ids in the top-p nucleus, of all response tokens end to end.
  std::vector<TokenId> top_p_ids;
  /// Where those of each response token begin, and the end of the last; empty: not recorded.
  std::vector<int64_t> top_p_offsets;
  /// Of top_p_ids, in the distribution that the token was drawn from; empty: not recorded.
  std::vector<float> top_p_log_probs;
  /// The K likeliest ids at each response token, best first, [response length][K] flat, and their log-probs in
  /// the whole vocabulary; empty: not recorded.
  std::vector<TokenId> topk_ids;
  std::vector<float> topk_log_probs;
  /// Which experts the engine's routers chose: [tokens - 1][layers][experts per token], flat, zeros in
  /// layers without experts; empty: not recorded.
  std::vector<int16_t> routed_experts;
  int64_t engine_prompt_tokens = 0;  // read by all of its engine calls
  int64_t cached_tokens = 0;         // of those, found in the prefix tree
  DraftCounts drafts;                // of all of its engine calls; zeros: the engine drafts nothing
  double generation_seconds = 0;

  int64_t response_length() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
  /// K of topk_ids, 0 where there are none.
  int64_t topk() const;
  /// Sum of the mask, or the response length without one.
  int64_t effective_response_length() const;
  /// The number that trains: `reward`, or reward[reward_key]. Throws ConfigError when it is not
  /// there or not a number.
  double reward_value(const std::string& reward_key) const;
};

/// The n samples of one prompt.
struct Group {
  int64_t ordinal = 0;
  std::vector<Sample> samples;
  /// The weights that the engine had when the group was first given to it, in asynchronous runs:
  /// what its staleness is counted from. Unset: it was not.
  std::optional<WeightVersion> begun_with = {};
};

/// Line-JSON form with the original's field names (core/sample_fields.h); round-trips, but for the bytes
/// of attachments.
json::object to_json(const Sample& sample);
Sample sample_from_json(const json::object& object, std::string_view where);

/// The original's `spec_info`: counts of drafts, of steps, and of the tokens that those drew; with verification
/// (docs/exact.md) of tokens compared and redrawn too.
json::object to_json(const DraftCounts& drafts);
/// Counts that are absent, or no number of anything, are 0.
DraftCounts draft_counts_from(const json::object& spec_info);

}  // namespace slime
