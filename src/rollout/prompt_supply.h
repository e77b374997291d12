#pragma once

/// Supply of prompts for a rollout, and the account of what became of them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/sample.h"

namespace slime::rollout {

/// Called on the rollout's thread, only between open_step() and the StepEnd of that step: what it
/// touches belongs to the rollout's thread for that time, and to the loop's otherwise.
class PromptSupply {
 public:
  virtual ~PromptSupply() = default;

  /// Up to `count` groups; fewer at the end of the data.
  virtual std::vector<Group> take(int64_t count) = 0;

  /// Groups for a later step.
  virtual void give_back(std::vector<Group> groups) = 0;

  /// Whether a group came finished from elsewhere: none of it is generated, and none forgotten.
  virtual bool is_replayed(const Group& /*group*/) const { return false; }

  /// This many tokens that were sampled for the group are thrown away. Before give_back().
  virtual void discarded(int64_t /*ordinal*/, int64_t /*num_tokens*/) {}

  /// The group was filtered, for the filter's reason, or "failed". May throw: the group is then
  /// given back.
  virtual void dropped(const Group& /*group*/, const std::string& /*reason*/) {}
};

}  // namespace slime::rollout
