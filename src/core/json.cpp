#include "core/json.h"

#include <fmt/format.h>

#include <fstream>

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

}  // namespace

json::value parse_json(std::string_view text, std::string_view where) {
  json::parse_options options;
  options.max_depth = 64;
  json::stream_parser parser(json::storage_ptr{}, options);
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
