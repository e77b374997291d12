#pragma once

/// A step's chunks on their way to the ranks that did not plan it, and the requests that those keep for
/// them: like rank 0's, but without callers. What a request brought goes with its first step; after
/// that only what is new goes, tokens and pages. A request that a step leaves out is forgotten at both
/// ends, and goes whole when it comes back.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"

namespace slime::engine {

/// Rank 0's end.
class StepFrames final {
 public:
  /// Before the step is launched.
  std::string frame_of(std::span<const Chunk> chunks);
  /// All requests go whole again.
  void forget() { sent_.clear(); }

 private:
  struct Sent {
    int64_t num_tokens = 0;  // that do not change any more
    std::vector<PageId> pages;
    std::vector<std::vector<PageId>> window_pages;
  };
  std::unordered_map<uint64_t, Sent> sent_;  // of the last step, by handle
};

/// The other end.
class MirroredSteps final {
 public:
  /// The step's chunks; their requests live until the next call. Throws net::FrameError for what no
  /// StepFrames made in this place.
  std::vector<Chunk> chunks_from(std::string_view frame);
  void forget() { requests_.clear(); }

 private:
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;  // of the last step, by handle
};

}  // namespace slime::engine
