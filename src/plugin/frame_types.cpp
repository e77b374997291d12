#include "plugin/frame_types.h"

#include <fmt/format.h>

#include <string_view>

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

namespace {

/// Further lines are seen to belong to the first.
std::string indented(const std::string& text) {
  std::string all;
  for (const char letter : text)
    all += letter == '\n' ? std::string("\n  ") : std::string(1, letter);
  return all;
}

/// A traceback without what follows its frames, where `error` has said that.
std::string frames_of(std::string trace, std::string_view error) {
  while (trace.ends_with('\n')) trace.pop_back();
  if (trace.ends_with(error)) {
    const std::size_t end = trace.size() - error.size();
    const std::size_t line = trace.rfind('\n', end);
    return line == std::string::npos ? "" : trace.substr(0, line);
  }
  // A syntax error: its place is in the message, not in the last line.
  const std::size_t last = trace.rfind('\n');
  const bool is_said = last != std::string::npos && error.starts_with(trace.substr(last + 1));
  return is_said ? trace.substr(0, last) : trace;
}

}  // namespace

std::vector<std::string> problems_of(const json::object& ready) {
  std::vector<std::string> problems;
  for (const json::value& each : list_of(ready, "problems")) {
    const json::object& problem = object_of(each);
    const std::string type = text_of(problem, "type");
    const std::string error =
        fmt::format("{}{}{}", type, type.empty() ? "" : ": ", text_of(problem, "message"));
    const std::string path = text_of(problem, "path");
    std::string text = fmt::format("{}{}{}: {}", text_of(problem, "flag"), path.empty() ? "" : " ",
                                   path, indented(error));
    if (const std::string frames = frames_of(text_of(problem, "traceback"), error); !frames.empty())
      text += "\n  " + indented(frames);
    problems.push_back(std::move(text));
  }
  return problems;
}

std::vector<std::string> notes_of(const json::object& ready) {
  std::vector<std::string> notes;
  const json::value* list = ready.if_contains("notes");
  if (list == nullptr || !list->is_array()) return notes;
  for (const json::value& note : list->get_array())
    if (note.is_string() && notes.size() < 100) notes.emplace_back(note.get_string());
  return notes;
}

std::string start_failure(const std::string& python, const std::string& told,
                          std::string_view log_tail) {
  const bool lacks_package = log_tail.find("No module named") != std::string_view::npos;
  return fmt::format("--plugin-python {}: {}{}", python, told,
                     lacks_package ? "\nput the folder python/ of a clone on PYTHONPATH" : "");
}

}  // namespace slime::plugin
