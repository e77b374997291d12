#pragma once

/// Work of one thread block of the decode attention kernel: its arguments, and a segment of the
/// plan as each of its warps sees it.

#include "kernels/cuda/attention/attention.h"
#include "kernels/gpu/decode_segment.h"

namespace slime::kernels::cuda::decode {

inline constexpr int kWarps = kDecodeWarps;
inline constexpr int kSetRows = kDecodeSetRows;

struct Arguments {
  AttendCall call;
  DecodeArrays plan;
  int group = 1;  // query heads per key-value head
  // Whether call.q is as it came from the projection: the kernel then norms and rotates, and
  // writes the step's keys and values. Otherwise norm_rotate did.
  bool rotates = false;
  RotateCall rotate;
};

/// A segment as one warp sees it: its row set, and which pages are its own.
struct Share {
  DecodeSegment segment;
  int num_rows = 0, sets = 1, set = 0;
  int page = 0, step = 1;  // within the segment
  __device__ bool is_there() const { return page < segment.num_pages; }
};

__device__ inline bool is_last_page(const DecodeSegment& segment, int page) {
  return page + 1 == segment.num_pages;
}
__device__ inline int valid_in(const DecodeSegment& segment, int page) {
  return is_last_page(segment, page) ? segment.last_tokens : kPageTokens;
}

class Block {
 public:
  __device__ explicit Block(const Arguments& arguments) : arguments_(arguments) {}

  __device__ Share share_of(int index, int warp) const {
    Share share;
    const auto* words = reinterpret_cast<const int4*>(arguments_.plan.segments + index);
    const int4 a = words[0], b = words[1];
    share.segment = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    share.num_rows = a.y * arguments_.group;
    share.sets = decode_row_sets(share.num_rows);
    share.set = warp & (share.sets - 1);
    share.step = kWarps / share.sets;
    share.page = warp / share.sets;
    // Pages before the window. Those that several sequences share are masked instead.
    if (arguments_.call.window > 0 && a.y == 1)
      share.page +=
          max(0, first_key(member(share.segment.first_member).sequence) - b.y) / kPageTokens;
    return share;
  }
  __device__ DecodeMember member(int index) const {
    const int4 x = reinterpret_cast<const int4*>(arguments_.plan.members)[index];
    return {x.x, x.y, x.z, x.w};
  }
  /// The first key that the row of this sequence sees.
  __device__ int first_key(int sequence) const {
    const AttendCall& call = arguments_.call;
    if (call.window == 0) return 0;
    const int pages = call.paged.page_starts[sequence + 1] - call.paged.page_starts[sequence];
    const int num_keys = (pages - 1) * kPageTokens + call.paged.last_page_tokens[sequence];
    return max(0, num_keys - static_cast<int>(call.window));
  }

 private:
  const Arguments& arguments_;
};

}  // namespace slime::kernels::cuda::decode
