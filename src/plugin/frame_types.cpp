#include "plugin/frame_types.h"

#include <fmt/format.h>

#include "net/frame_channel.h"

namespace slime::plugin {

std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

const json::array& list_of(const json::object& head, std::string_view name) {
  const json::value* value = head.if_contains(name);
  if (value == nullptr || !value->is_array())
    throw net::FrameError(fmt::format("a frame without its {}", name));
  return value->get_array();
}

const json::object& object_of(const json::value& value) {
  if (!value.is_object()) throw net::FrameError("a frame with something that is no object");
  return value.get_object();
}

int64_t id_of(const json::object& object) {
  const json::value* id = object.if_contains("id");
  if (id == nullptr || !id->is_int64()) throw net::FrameError("a frame with something without id");
  return id->get_int64();
}

std::vector<std::string> problems_of(const json::object& ready) {
  std::vector<std::string> problems;
  for (const json::value& each : list_of(ready, "problems")) {
    const json::object& problem = object_of(each);
    const std::string type = text_of(problem, "type");
    std::string text =
        fmt::format("{} {}: {}{}{}", text_of(problem, "flag"), text_of(problem, "path"), type,
                    type.empty() ? "" : ": ", text_of(problem, "message"));
    if (const std::string trace = text_of(problem, "traceback"); !trace.empty())
      text += "\n" + trace;
    problems.push_back(std::move(text));
  }
  return problems;
}

std::string start_failure(const std::string& python, const std::string& told,
                          std::string_view log_tail) {
  const bool lacks_package = log_tail.find("No module named") != std::string_view::npos;
  return fmt::format("--plugin-python {}: {}{}", python, told,
                     lacks_package ? "\nput the folder python/ of a clone on PYTHONPATH" : "");
}

}  // namespace slime::plugin
