#pragma once

/// Warnings of the grammar engine, caught: it warns where it would bind less than was asked for.

#include <string>
#include <vector>

namespace slime::text {

/// While it lives, warnings on this thread are kept and not lost. One at a time on a thread.
class EngineWarnings final {
 public:
  EngineWarnings();
  ~EngineWarnings();
  EngineWarnings(const EngineWarnings&) = delete;
  EngineWarnings& operator=(const EngineWarnings&) = delete;

  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

}  // namespace slime::text
