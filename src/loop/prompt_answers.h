#pragma once

/// The buffer as `data_source` of a user's function: prompts that it takes, and groups that it gives
/// back. Each has its fate in the ledger. docs/plugin_protocol.md, "Questions".

#include <cstdint>
#include <map>
#include <string>

#include "buffer/data_source.h"
#include "loop/fates.h"
#include "plugin/questions.h"

namespace slime::loop {

/// Lives as long as one call, on the thread that owns buffer and ledger.
class PromptAnswers {
 public:
  /// References outlive the object.
  PromptAnswers(buffer::DataSource& prompts, Fates& fates) : prompts_(prompts), fates_(fates) {}

  /// Throws ConfigError or net::FrameError for a question that cannot be answered: groups that were
  /// never taken, or are of another size.
  plugin::ReplyValue answer(const plugin::Question& question);

  /// The call is over: prompts that were taken and not given back have failed, for `reason`.
  void end(const std::string& reason);

 private:
  plugin::ReplyValue get_samples(const plugin::Question& question);
  void add_samples(const plugin::Question& question);

  buffer::DataSource& prompts_;
  Fates& fates_;
  std::map<int64_t, Group> taken_;  // and not given back, by ordinal
};

}  // namespace slime::loop
