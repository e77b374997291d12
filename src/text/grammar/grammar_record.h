#pragma once

/// A line of `slime grammar`: a grammar and texts, to which of them it accepts.
///
///   {"kind": "regex", "src": "[0-9]{4}", "texts": ["2026", "26", "20-6"]}
///   {"compiled": true, "error": null, "results": [
///     {"accepted": true, "refused_at": null}, {"accepted": false, "refused_at": 2},
///     {"accepted": false, "refused_at": 2}]}

#include <memory>
#include <string>

#include "core/json.h"
#include "text/grammar/grammar_limits.h"
#include "text/grammar/grammar_vocabulary.h"

namespace slime::text {

class Tokenizer;

class GrammarRecords final {
 public:
  /// With a tokenizer, which outlives the object, texts are tried as its tokens too.
  explicit GrammarRecords(const Tokenizer* tokenizer, const GrammarLimits& limits = {});

  /// Reads `kind`, `src` (a text, or the JSON value that it holds), `texts` and `max_whitespace`.
  /// `refused_at` is the byte that cannot come, or the text's length where it cannot end there. A source
  /// that is refused has "compiled": false and "error". With a tokenizer each result has "by_tokens";
  /// another answer than that of bytes is "differs": true. Throws ConfigError that begins with `where`
  /// where the line itself is wrong.
  json::object record(const json::object& line, const std::string& where) const;

 private:
  const Tokenizer* tokenizer_;
  GrammarLimits limits_;
  GrammarVocabulary bytes_;
  std::unique_ptr<GrammarVocabulary> tokens_;  // null without a tokenizer
};

}  // namespace slime::text
