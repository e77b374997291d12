#pragma once

/// One response with everything that belongs to it as a JSON object, to its score as another: lines of
/// `slime score`, and what users' functions ask of the program.

#include <functional>
#include <string>

#include "core/json.h"
#include "reward/reward.h"

namespace slime::reward {

/// What responses are scored with.
struct Scoring {
  std::string type;  // "--rm-type"
  RewardConfig config;
  std::string reward_key;
  /// Set: scores instead of a rule, and `type` is not looked at.
  std::function<Expected<json::value>(const Sample& sample)> judge = {};
};

/// The response as a finished sample, of texts alone: it has no tokens. `ordinal` is its number.
/// Throws ConfigError that starts with `where` when a member has another type than score_record() says.
Sample sample_of_record(const json::object& record, int64_t ordinal, const std::string& where);

/// {"score": 1}, with "reward" where the reward is a record, or {"score": null, "reason": "..."}.
/// `record` has "response" (null counts as empty) and may have "label", "metadata" and "prompt",
/// a string or a list of messages;
/// `ordinal` is its number, which "random" draws by. Throws ConfigError that starts with `where` when
/// a member has another type, or asks for a reward that does not exist or has no server.
json::object score_record(const json::object& record, int64_t ordinal, const Scoring& how,
                          const std::string& where);

}  // namespace slime::reward
