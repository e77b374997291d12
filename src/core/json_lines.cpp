#include "core/json_lines.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "core/error.h"

namespace slime {

JsonLines::JsonLines(const std::string& file, std::size_t line_limit_bytes)
    : stream_(&std::cin), name_("standard input"), line_limit_bytes_(line_limit_bytes) {
  if (file.empty() || file == "-") return;
  file_.open(file, std::ios::binary);
  if (!file_) throw ConfigError(fmt::format("{}: cannot be opened for reading", file));
  stream_ = &file_;
  name_ = file;
}

JsonLines::JsonLines(std::istream& stream, std::string name, std::size_t line_limit_bytes)
    : stream_(&stream), name_(std::move(name)), line_limit_bytes_(line_limit_bytes) {}

bool JsonLines::read_line(std::string& line) {
  line.clear();
  std::streambuf& buffer = *stream_->rdbuf();
  int byte = buffer.sbumpc();
  if (byte == std::char_traits<char>::eof()) return false;
  ++line_number_;
  for (; byte != std::char_traits<char>::eof() && byte != '\n'; byte = buffer.sbumpc()) {
    if (line.size() == line_limit_bytes_) {
      throw ConfigError(
          fmt::format("{}: longer than the limit of {} bytes", where(), line_limit_bytes_));
    }
    line += static_cast<char>(byte);
  }
  return true;
}

std::optional<json::object> JsonLines::next() {
  std::string line;
  while (read_line(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json::value value = parse_json(line, where());
    if (!value.is_object()) throw ConfigError(fmt::format("{}: not a JSON object", where()));
    return std::move(value.get_object());
  }
  return std::nullopt;
}

std::string JsonLines::where() const { return fmt::format("{}, line {}", name_, line_number_); }

std::string_view JsonLines::string_at(const json::object& object, std::string_view key) const {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) {
    throw ConfigError(fmt::format("{}: \"{}\" is {}; it must be a string", where(), key,
                                  value == nullptr ? "missing" : "not a string"));
  }
  return value->get_string();
}

std::vector<int32_t> JsonLines::ids_at(const json::object& object, std::string_view key) const {
  const json::value* value = object.if_contains(key);
  const auto reject = [&](std::string_view why) {
    return ConfigError(
        fmt::format("{}: \"{}\" is {}; it must be an array of token ids", where(), key, why));
  };
  if (value == nullptr) throw reject("missing");
  if (!value->is_array()) throw reject("not an array");
  std::vector<int32_t> ids;
  ids.reserve(value->get_array().size());
  for (const json::value& element : value->get_array()) {
    boost::system::error_code error;
    const auto id = element.to_number<int32_t>(error);
    if (error || id < 0 || element.is_double())
      throw reject(fmt::format("wrong at index {}", ids.size()));
    ids.push_back(id);
  }
  return ids;
}

void write_json_line(const json::value& value) {
  std::string line = json::serialize(value);
  line += '\n';
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written");
  }
}

}  // namespace slime
