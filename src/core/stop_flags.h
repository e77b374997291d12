#pragma once

/// Flags that end a wait: any of them. Other threads, and signal handlers, set them.

#include <array>
#include <atomic>

namespace slime {

class StopFlags {
 public:
  StopFlags() = default;  // never
  // Implicit: one flag is the usual case. Each outlives the object.
  StopFlags(const std::atomic<bool>& flag) : flags_{&flag, nullptr} {}
  StopFlags(const std::atomic<bool>* flag) : flags_{flag, nullptr} {}
  StopFlags(const std::atomic<bool>& one, const std::atomic<bool>& other) : flags_{&one, &other} {}

  bool load() const {
    for (const std::atomic<bool>* flag : flags_)
      if (flag != nullptr && flag->load()) return true;
    return false;
  }
  explicit operator bool() const { return load(); }
  /// Whether there is any.
  bool may_stop() const { return flags_[0] != nullptr || flags_[1] != nullptr; }

 private:
  std::array<const std::atomic<bool>*, 2> flags_{};
};

}  // namespace slime
