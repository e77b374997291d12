#include "engine/http/responses/client_tools.h"

#include <algorithm>

namespace slime::engine {
namespace {

constexpr ClientTool kTools[] = {
    {"local_shell", "local_shell_call", "local_shell_call_output", "action",
     "Runs a command on the user's machine.",
     R"({"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}},
         "working_directory":{"type":"string"},"timeout_ms":{"type":"integer"},
         "env":{"type":"object","additionalProperties":{"type":"string"}}},
         "required":["command"]})"},
    {"shell", "shell_call", "shell_call_output", "action",
     "Runs shell commands on the user's machine, one after the other.",
     R"({"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}},
         "timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},
         "required":["commands"]})"},
    {"apply_patch", "apply_patch_call", "apply_patch_call_output", "operation",
     "Creates, changes or deletes one file.",
     R"({"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file",
         "delete_file"]},"path":{"type":"string"},"diff":{"type":"string"}},
         "required":["type","path"]})"},
};

const ClientTool* find(std::string_view ClientTool::*member, std::string_view word) {
  const auto* tool = std::find_if(std::begin(kTools), std::end(kTools),
                                  [&](const ClientTool& each) { return each.*member == word; });
  return tool == std::end(kTools) ? nullptr : tool;
}

}  // namespace

const ClientTool* find_client_tool(std::string_view type) { return find(&ClientTool::type, type); }
const ClientTool* find_client_tool_of_call(std::string_view item_type) {
  return find(&ClientTool::call_type, item_type);
}
const ClientTool* find_client_tool_of_output(std::string_view item_type) {
  return find(&ClientTool::output_type, item_type);
}

json::object to_chat_tool(const ClientTool& tool) {
  return {{"type", "function"},
          {"function",
           {{"name", tool.type},
            {"description", tool.description},
            {"parameters", parse_json(tool.parameters, tool.type)}}}};
}

json::object to_action(const ClientTool& tool, json::object arguments) {
  if (tool.type != "local_shell") return arguments;
  arguments["type"] = "exec";
  if (!arguments.contains("env")) arguments["env"] = json::object();
  return arguments;
}

}  // namespace slime::engine
