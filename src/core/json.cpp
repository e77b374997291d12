#include "core/json.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <fstream>
#include <unordered_set>

#include "core/error.h"

namespace slime {
namespace {

void write_pretty(const json::value& value, std::string& out, int indent) {
  const auto newline = [&](int depth) {
    out += '\n';
    out.append(static_cast<std::size_t>(depth) * 2, ' ');
  };
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    out += '{';
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ',';
      first = false;
      newline(indent + 1);
      out += json::serialize(json::string(member.key()));
      out += ": ";
      write_pretty(member.value(), out, indent + 1);
    }
    newline(indent);
    out += '}';
    return;
  }
  if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
    out += '[';
    bool first = true;
    for (const json::value& element : *array) {
      if (!first) out += ',';
      first = false;
      newline(indent + 1);
      write_pretty(element, out, indent + 1);
    }
    newline(indent);
    out += ']';
    return;
  }
  out += json::serialize(value);
}

/// Follows the parser through the objects and remembers the keys of those that are open.
struct KeyWatcher {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  std::vector<std::unordered_set<std::string>> open;
  std::string key;  // read so far
  std::optional<std::string> duplicate;

  using Code = json::error_code;
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, Code&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t, Code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, Code&) {
    key += part;
    return true;
  }
  bool on_key(json::string_view part, std::size_t, Code& error) {
    key += part;
    if (!open.back().insert(key).second) {
      duplicate = key;
      error = json::error::syntax;  // ends the pass
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, Code&) { return true; }
  bool on_string(json::string_view, std::size_t, Code&) { return true; }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, Code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, Code&) { return true; }
  bool on_double(double, json::string_view, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }
};

json::parse_options limited() {
  json::parse_options options;
  options.max_depth = 64;
  return options;
}

}  // namespace

std::optional<std::string> find_duplicate_key(std::string_view text) {
  json::basic_parser<KeyWatcher> parser(limited());
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().duplicate;
}

json::value parse_json(std::string_view text, std::string_view where) {
  json::stream_parser parser(json::storage_ptr{}, limited());
  json::error_code error;
  const std::size_t consumed = parser.write_some(text.data(), text.size(), error);
  if (!error && consumed == text.size()) parser.finish(error);
  if (!error && consumed < text.size()) {
    const std::string_view rest = text.substr(consumed);
    if (rest.find_first_not_of(" \t\r\n") != std::string_view::npos) {
      throw ConfigError(fmt::format("{}: text after the JSON value, at byte {}", where, consumed));
    }
    parser.finish(error);
  }
  if (error)
    throw ConfigError(
        fmt::format("{}: not valid JSON: {} at byte {}", where, error.message(), consumed));
  return parser.release();
}

json::value read_json_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error)
    throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
  if (size > limit_bytes) {
    throw ConfigError(fmt::format("{}: {} bytes of JSON, more than the limit of {}", path.string(),
                                  size, limit_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw ConfigError(fmt::format("{}: cannot be read", path.string()));
  }
  return parse_json(text, path.string());
}

std::string to_pretty_json(const json::value& value) {
  std::string out;
  write_pretty(value, out, 0);
  out += '\n';
  return out;
}

}  // namespace slime
