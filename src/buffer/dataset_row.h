#pragma once

/// One row of a prompt file, and the names of the fields that hold its parts.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace slime::buffer {

/// Where a row keeps its parts: names of fields, or paths into nested ones (find_field).
struct RowKeys {
  std::string input =
      "input";        // "--input-key": a string, an integer (its text) or a list of messages
  std::string label;  // "--label-key": empty: rows have no label but that of a known schema
  bool takes_labels = true;
  std::string metadata = "metadata";  // "--metadata-key": an object; may be absent
  std::string chosen;  // "--chosen-key": of preferences; both go to the metadata under these names
  std::string rejected;    // "--rejected-key"
  std::string completion;  // "--completion-key": of supervised rows; to the metadata, may be absent
  std::string tools = "tools";  // "--tool-key": a list, or a string with its JSON; may be absent
  /// "--rename-columns": top-level fields, old name and new one, before all of the above.
  std::vector<std::pair<std::string, std::string>> renamed = {};
  std::string format = "auto";  // "--data-format" (known_schema.h)
};

/// Renders messages with the generation prompt at the end; `tools` is empty when the row has none.
/// Arguments such as enable_thinking are the caller's to bind. Called from several threads at once.
/// A ConfigError that it throws is reported with file and line.
using RenderFn = std::function<std::string(const json::array& messages, const json::array& tools)>;

/// A row of preferences may have whole conversations as its two responses: what both begin with is
/// its prompt, and what follows is left of them (and its own prompt, where it has one, is that
/// beginning). Then `prompt` is that list of messages.
struct DatasetRow {
  json::value prompt;     // a string, or an array of objects
  json::value label;      // null without a label key
  json::object metadata;  // with "tools" when the row has tools
  json::array tools;
  // Of a row as it is read; a stored one does not know.
  bool has_metadata_field = false;
  bool has_tools_field = false;
  std::string fields;  // "the row has prompt, answer"
  std::string schema;  // "GSM8K: question is the prompt, ...": it was recognised; empty: it was not
};

/// The field that `key` names: "answer", or the path "reward_model.ground_truth" where no field has
/// that whole name; elements of lists are numbered from 0. Null: there is none.
const json::value* find_field(const json::object& row, std::string_view key);

/// Gives fields other names: "question" becomes "prompt". An old name may be a path, as above. Throws
/// ConfigError for a row with neither name, or with both; one with the new name alone stays as it is.
void rename_fields(json::object& row, const std::vector<std::pair<std::string, std::string>>& names,
                   std::string_view where);

/// Reads one line. Throws ConfigError that starts with `where` and says which field is wrong.
DatasetRow read_row(std::string_view line, const RowKeys& keys, std::string_view where);

/// What the engine is to read: the rendered template (a string prompt becomes one user message),
/// or, when `render` is empty, the prompt string; a list of messages without a template stays as
/// its JSON text.
std::string render_row(const DatasetRow& row, const RenderFn& render);

/// The prompt as messages: a string is one user message.
json::array messages_of(const DatasetRow& row);

/// The compact form in which a data set keeps its rows, as one line of JSON, and back.
std::string pack_row(const DatasetRow& row);
DatasetRow unpack_row(std::string_view packed);

}  // namespace slime::buffer
