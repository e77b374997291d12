#pragma once

/// Schemas of published data sets: which of their fields are prompt, answer, conversation or pair. One table; a row
/// that fits an entry gets the fields that the flags name, beside its own.
///
///   {"question": "...", "answer": "... #### 72"}     GSM8K: "input" is the question, the label "72"

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::buffer {

struct RowKeys;

/// The use of rows, which decides the fields that they need.
enum class RowUse {
  kPrompts,      // generated from, and scored by the label
  kSupervised,   // trained as they are
  kPreferences,  // pairs
};

struct KnownSchema {
  std::string_view name;   // of --data-format: "gsm8k"
  std::string_view title;  // "GSM8K"
  std::string_view says;   // "question is the prompt, what follows #### in answer the label"
  bool (*fits)(const json::object& row) = nullptr;
  /// Sets fields of a row that fits; `label` where rows have one for this use.
  void (*apply)(json::object& row, const RowKeys& keys, RowUse use, json::value& label) = nullptr;
};

/// In the order in which they are tried.
const std::vector<KnownSchema>& known_schemas();
/// Their names.
std::vector<std::string_view> known_formats();

/// The entry by which a row is to be read; null: none. `format`: a name, "auto" or "none". With
/// auto a row is recognised only where it lacks what the flags name. Throws ConfigError that starts
/// with `where` for a row that does not fit the name.
const KnownSchema* schema_of(const json::object& row, const RowKeys& keys, std::string_view where);

}  // namespace slime::buffer
