#pragma once

/// SGLang's words for what drafts come from, and how many there may be (docs/speculation.md).

#include <cstdint>
#include <string>

#include "core/lower_case.h"

namespace slime {

/// Of a sequence and step.
inline constexpr int64_t kUsualDrafts = 7;
inline constexpr int64_t kMostDrafts = 15;

enum class DraftWord {
  kNone,
  kTexts,  // NGRAM
  kLayer,  // NEXTN, and EAGLE without a draft model: the model's own layer
  kModel,  // EAGLE3, and EAGLE with a draft model
  kOther,  // a draft model of another kind
};

/// Of --speculative-algorithm, in capitals or not. `has_model`: --speculative-draft-model-path names a directory that
/// is not the model's own.
inline DraftWord draft_word_of(const std::string& algorithm, bool has_model) {
  const std::string word = lower_case(algorithm);
  if (word.empty() || word == "none") return DraftWord::kNone;
  if (word == "ngram") return DraftWord::kTexts;
  if (word == "eagle3") return DraftWord::kModel;
  if (word == "eagle") return has_model ? DraftWord::kModel : DraftWord::kLayer;
  return word == "nextn" ? DraftWord::kLayer : DraftWord::kOther;
}

}  // namespace slime
