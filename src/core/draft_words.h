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
  kLayer,  // NEXTN, EAGLE: the model's own layer. With EAGLE SGLang means a model in files of its own too.
  kOther,  // a draft model in files of its own
};

/// Of --speculative-algorithm, in capitals or not.
inline DraftWord draft_word_of(const std::string& algorithm) {
  const std::string word = lower_case(algorithm);
  if (word.empty() || word == "none") return DraftWord::kNone;
  if (word == "ngram") return DraftWord::kTexts;
  return word == "nextn" || word == "eagle" ? DraftWord::kLayer : DraftWord::kOther;
}

}  // namespace slime
