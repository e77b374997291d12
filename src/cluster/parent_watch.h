#pragma once

/// Watch on the parent process: its end is noticed within a fraction of a second.
///
/// By a pipe of the parent's that is this process's standard input, and by who the parent is: a copy of
/// the pipe may live on in a child that the parent forked. Not PR_SET_PDEATHSIG, which tells of the end
/// of the parent's thread.

#include <atomic>
#include <functional>
#include <thread>

namespace slime::cluster {

class ParentWatch {
 public:
  /// `ended` is called once, by a thread of this object. What comes on standard input is thrown away.
  explicit ParentWatch(std::function<void()> ended);
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  void watch() const;

  const std::function<void()> ended_;
  const int parent_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace slime::cluster
