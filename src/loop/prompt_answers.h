#pragma once

/// The buffer as `data_source` of a user's function: prompts that it takes, and groups that it gives
/// back. Each has its outcome in the ledger. docs/plugin_protocol.md, "Questions".

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "loop/outcome_log.h"
#include "plugin/questions.h"
#include "plugin/read_sample.h"

namespace slime::loop {

/// Lives as long as one call, on the thread that owns buffer and ledger.
class PromptAnswers {
 public:
  /// What a function may have done to groups that come back.
  enum class Draws {
    kNothing,  // it has looked at them
    kTokens,   // it has sampled some
  };

  /// References outlive the object.
  PromptAnswers(buffer::DataSource& prompts, OutcomeLog& outcomes, Draws draws,
                const plugin::SampleLimits& limits)
      : prompts_(prompts), outcomes_(outcomes), draws_(draws), limits_(limits) {}

  /// Throws ConfigError or net::FrameError for a question that cannot be answered: groups that were
  /// never taken, or are of another size.
  plugin::ReplyValue answer(const plugin::Question& question);

  /// A group that was taken and is not given back, by its ordinal; it is taken out.
  std::optional<Group> find_taken(int64_t ordinal);
  /// All of those, as they were taken.
  std::vector<Group> taken() const;
  /// Tokens of groups that were given back, which they had not when they were taken.
  int64_t num_sampled_tokens() const { return num_sampled_; }

  /// The call is over: prompts that were taken and not given back have failed, for `reason`.
  void end(const std::string& reason);

 private:
  plugin::ReplyValue get_samples(const plugin::Question& question);
  void add_samples(const plugin::Question& question);

  buffer::DataSource& prompts_;
  OutcomeLog& outcomes_;
  const Draws draws_;
  const plugin::SampleLimits limits_;
  int64_t num_sampled_ = 0;
  std::map<int64_t, Group> taken_;  // and not given back, by ordinal
};

}  // namespace slime::loop
