#pragma once

/// Prompts from elsewhere than a file: a class of the user's, who also keeps the groups that wait.

#include <cstdint>
#include <vector>

#include "core/sample.h"

namespace slime::buffer {

inline constexpr int64_t kNewGroup = -1;  // the ordinal of a group that was not given out before

class PromptSupply {
 public:
  virtual ~PromptSupply() = default;

  /// At most `count` groups; none: there are no more. Those that were given back have the ordinal that
  /// they had, others kNewGroup. Throws ConfigError for what cannot be used.
  virtual std::vector<Group> take(int64_t count) = 0;
  /// Groups that are to be given out again. Throws ConfigError when nobody takes them.
  virtual void give_back(const std::vector<Group>& groups) = 0;
};

}  // namespace slime::buffer
