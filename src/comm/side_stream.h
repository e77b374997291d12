#pragma once

/// A second GPU stream, for communication that overlaps with the matrix products of the current one.
///
///   side.run(x, [&] { group.all_gather_(x, ...); });   // behind what is in the current stream
///   ... products that do not need x ...                // beside it
///   side.join();
///   ... products that do ...
///
/// Memory that `work` uses is kept until join(): the allocator knows the current stream alone. On a CPU
/// everything happens at once, in the order of the calls. One thread at a time.

#include <c10/core/Stream.h>

#include <functional>
#include <optional>

#include "core/tensor.h"

namespace slime::comm {

/// Multiprocessors of a GPU that operations over tensor-parallel ranks take; products that run beside
/// them leave so many.
inline constexpr int kProcessorsOfMessages = 16;

/// What comes next in `later` runs behind what is in `earlier`.
void order(const c10::Stream& earlier, const c10::Stream& later);

class SideStream final {
 public:
  /// `work` puts what it does into the current stream of x's device, which is the side stream then.
  void run(const Tensor& x, const std::function<void()>& work);
  /// What comes next in the current stream is behind all that.
  void join();

 private:
  std::optional<c10::Stream> stream_;  // none on a CPU, and before the first run()
  bool is_apart_ = false;              // something was run since join()
};

}  // namespace slime::comm
