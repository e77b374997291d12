#pragma once

/// Ranges of mapped memory as a driver takes them: all pieces by one call, or a call for each.
///
/// Memory is mapped in pieces, each with pages of its own. NVIDIA's driver unmaps any number of them by one call. AMD's
/// fails at that in ROCm 6, and at access to a part of a mapping in some versions of 7 (docs/rocm.md).

#include <algorithm>
#include <cstdint>

namespace slime::kernels {

/// Calls `call(offset, bytes)` for [0, size): for each piece of `piece` bytes (the last may be smaller), or once. The first
/// status that is not `success`, of calls that are all made; with none of them `success`.
template <typename Status, typename Call>
Status over_pieces(int64_t size, int64_t piece, bool one_by_one, Status success, const Call& call) {
  if (!one_by_one) return call(int64_t{0}, size);
  Status first_problem = success;
  for (int64_t offset = 0; offset < size; offset += piece) {
    const Status status = call(offset, std::min(piece, size - offset));
    if (first_problem == success) first_problem = status;
  }
  return first_problem;
}

}  // namespace slime::kernels
