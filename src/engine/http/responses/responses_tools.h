#pragma once

/// Tools of a Responses request: functions, custom tools and namespaces, as chat tools, and the way
/// back from the name that the model wrote.
///
///   {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", ...}]}
///   -> {"type": "function", "function": {"name": "files__read", ...}}
///
/// Tools that OpenAI runs (web_search, file_search, mcp, ...) are left out with a warning.

#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"
#include "engine/chat/chat_request.h"
#include "engine/http/responses/client_tools.h"

namespace slime::engine {

/// A tool as the client knows it.
struct ResponsesTool {
  std::string shown_name;  // to the model
  std::string name;
  std::string name_space;  // empty: none
  bool is_custom = false;
  const ClientTool* client_tool = nullptr;  // of type local_shell, ...
};

class ResponsesTools final {
 public:
  /// Reads `tools`; problems go to the reader, names of dropped tools to `warnings`.
  static ResponsesTools read(const FieldReader& body, std::vector<std::string>& warnings);

  /// For ChatRequest.
  const json::array& chat_tools() const { return chat_tools_; }
  /// Which tool the model meant by `name`: as shown, or with a dot before the tool's own name; null
  /// for one that the request does not have.
  const ResponsesTool* find(std::string_view name) const;

  /// `tool_choice`; problems go to the reader.
  ToolChoice read_choice(const FieldReader& body) const;

 private:
  void add(const FieldReader& tool, std::string_view kind, const std::string& name_space);
  void add_shown(const FieldReader& tool, ResponsesTool read, json::object chat_tool);
  void add_namespace(const FieldReader& tool, std::vector<std::string>& warnings);
  /// The name as shown; of one that the request does not have, a problem of the reader.
  std::optional<std::string> chosen(const FieldReader& choice) const;
  void read_allowed(const FieldReader& choice, ToolChoice& read) const;

  json::array chat_tools_;
  std::vector<ResponsesTool> tools_;
};

/// "files__read": names of tools have letters, digits, _ and - in all families' formats.
std::string shown_tool_name(std::string_view name_space, std::string_view name);

}  // namespace slime::engine
