#pragma once

/// For tests: which texts a grammar accepts, byte by byte.

#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/grammar_record.h"

namespace slime::text {

/// What `slime grammar` answers.
inline json::object grammar_answer(std::string_view kind, std::string_view source,
                                   json::array texts, const GrammarLimits& limits = {}) {
  const json::object line{{"kind", kind}, {"src", source}, {"texts", texts}};
  return GrammarRecords(nullptr, limits).record(line, "test");
}

inline bool grammar_accepts(std::string_view kind, std::string_view source, std::string_view text) {
  const json::object answer = grammar_answer(kind, source, {text});
  if (!answer.at("compiled").get_bool())
    throw ConfigError(std::string(answer.at("error").get_string()));
  return answer.at("results").get_array()[0].get_object().at("accepted").get_bool();
}

/// Empty when there is none.
inline std::string grammar_error(std::string_view kind, std::string_view source,
                                 const GrammarLimits& limits = {}) {
  const json::object answer = grammar_answer(kind, source, {}, limits);
  return answer.at("error").is_null() ? "" : std::string(answer.at("error").get_string());
}

}  // namespace slime::text
