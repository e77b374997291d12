#pragma once

/// Supervised rows: a conversation becomes tokens and a mask, and nothing is generated (spec
/// section 9).

#include <string>

#include "core/sample.h"
#include "loop/prompts.h"
#include "text/loss_mask.h"

namespace slime::loop {

class SupervisedRows {
 public:
  /// `mask_type` is --loss-mask-type. `text` outlives the object. Throws ConfigError for an unknown
  /// word and for a template that the type cannot read.
  SupervisedRows(const ModelText& text, const std::string& mask_type);

  /// Fills tokens, prompt length and mask of the group's samples from their messages
  /// (Sample::prompt holds them as JSON). The response begins at the first trained token. False
  /// when the conversation has none. Throws ConfigError naming the prompt.
  bool complete(Group& group) const;

  /// The same for a pair of preferences: the group's two samples become the prompt with the chosen
  /// and with the rejected response (a string, or messages that follow the prompt) of its metadata.
  /// Only the response is trained.
  bool complete_pair(Group& group, const std::string& chosen_key,
                     const std::string& rejected_key) const;

 private:
  bool fill(Sample& sample, const json::array& messages) const;

  text::LossMasker masker_;
};

}  // namespace slime::loop
