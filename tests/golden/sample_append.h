#pragma once

/// Golden test of samples that grow by segments, against the original's numbers (spec sections 17.1
/// and 17.2), with answers of tools and routing of experts. The program's own growth
/// (rollout/sample_growth.h) gives the same where both apply.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"

namespace slime::golden {

/// Ids that survived the top-p cut, token by token: token t of the segment kept
/// ids[offsets[t] .. offsets[t + 1]).
struct KeptIds {
  std::vector<TokenId> ids;
  std::vector<int64_t> offsets;  // one more than new tokens; starts with 0, ends with ids.size()
};

/// Experts chosen by the engine's routers for token positions first_row, first_row + 1, ...
struct RoutedExperts {
  std::vector<int32_t> ids;  // [rows][layers][topk] flat
  int64_t first_row = 0;
};

/// Sizes of RoutedExperts::ids.
struct RoutingShape {
  int64_t num_layers = 0;
  int64_t topk = 0;
};

struct Segment {
  std::vector<TokenId> tokens;
  std::optional<std::vector<float>> log_probs;  // one per token; generated tokens need them
  bool is_trained = true;  // false: the environment wrote it (a tool), which brings no log-probs
  std::string text;
  std::optional<KeptIds> kept_ids;
  std::optional<RoutedExperts> routed_experts;
  std::vector<VersionRun> versions;  // of its tokens; of those that it leaves out nothing is known
  int64_t prompt_tokens = 0;  // that the call read, and how many of them the engine had cached
  int64_t cached_tokens = 0;
  std::optional<Status> status;  // that the call ended with; none: the status stays
};

/// Appends in one piece: an error leaves the sample as it was. `routing` is needed for routed
/// experts only. Errors: a trained segment without one log-prob per token, or after tokens that
/// have none; an untrained one with log-probs or versions; kept ids or routed experts of the wrong
/// sizes.
Expected<void> append_segment(Sample& sample, Segment segment, const RoutingShape& routing = {});

}  // namespace slime::golden
