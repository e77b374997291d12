#pragma once

/// Runs as words, and what they are told of flags that nothing in them reads, for tests.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "config/parse_flags.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "loop/translations.h"
#include "model/config.h"

namespace slime::loop {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A run that draws and trains, with nothing but what it needs.
inline Words policy() {
  return {"--hf-checkpoint",
          "/nowhere",
          "--prompt-data",
          "/nowhere.jsonl",
          "--rm-type",
          "math",
          "--num-rollout",
          "10",
          "--rollout-batch-size",
          "4",
          "--n-samples-per-prompt",
          "4",
          "--rollout-max-response-len",
          "8",
          "--device",
          "cpu"};
}
/// The flags as --dry-run has them behind all that a run would translate.
inline config::ParsedFlags translated(const Words& words,
                                      const model::ModelConfig* model = nullptr) {
  config::ParsedFlags flags = config::parse_flags(words);
  std::vector<std::string> absent;
  config::complete_and_validate(flags, absent);
  make_translations(flags.config, model);
  config::note_unread_flags(flags);
  return flags;
}

/// Of a run whose data ask for nothing.
inline std::string notes(const Words& words, const model::ModelConfig* model = nullptr) {
  const config::ParsedFlags flags = translated(words, model);
  Words told = flags.warnings;
  for (const std::string& note : config::unread_at_start(flags)) told.push_back(note);
  return fmt::format("{}", fmt::join(told, "\n"));
}

}  // namespace slime::loop
