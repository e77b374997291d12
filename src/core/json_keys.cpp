// The keys of a JSON text, looked at without building its value.

#include <string>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "core/json_events.h"

namespace slime {
namespace {

/// Follows the parser through the objects and remembers the keys of those that are open.
struct KeyWatcher : JsonEvents {
  std::vector<std::unordered_set<std::string>> open;
  std::string key;  // read so far
  std::optional<std::string> duplicate;

  bool on_object_begin(Code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, Code&) {
    open.pop_back();
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, Code&) {
    key += part;
    return true;
  }
  bool on_key(json::string_view part, std::size_t, Code& error) {
    key += part;
    if (!open.back().insert(key).second) {
      duplicate = key;
      return stop(error);
    }
    key.clear();
    return true;
  }
};

struct KeyCounter : JsonEvents {
  std::size_t limit = 0;
  std::size_t count = 0;

  bool on_key(json::string_view, std::size_t, Code& error) {
    return ++count <= limit || stop(error);
  }
};

}  // namespace

std::optional<std::string> find_duplicate_key(std::string_view text) {
  json::basic_parser<KeyWatcher> parser(json_limits());
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().duplicate;
}

std::size_t count_keys(std::string_view text, std::size_t limit) {
  json::basic_parser<KeyCounter> parser(json_limits());
  parser.handler().limit = limit;
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().count;
}

}  // namespace slime
