#include "core/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "core/error.h"
#include "core/safe_text.h"

namespace slime {

JsonLines::JsonLines(const std::string& file, std::size_t line_limit_bytes)
    : stream_(&std::cin), name_("standard input"), line_limit_bytes_(line_limit_bytes) {
  if (file.empty() || file == "-") return;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw ConfigError(fmt::format("{}: is a directory; a file of JSON lines is needed", file));
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
    if (line_number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json::value value = parse_json(line, where());
    if (!value.is_object()) throw ConfigError(fmt::format("{}: not a JSON object", where()));
    if (const auto key = find_duplicate_key(line))
      throw ConfigError(fmt::format("{}: the key \"{}\" is there twice", where(), *key));
    return std::move(value.get_object());
  }
  return std::nullopt;
}

std::string JsonLines::where() const { return fmt::format("{}, line {}", name_, line_number_); }

FieldReader JsonLines::fields(const json::object& object) const {
  return FieldReader(object, where() + ": ").required();
}

void write_json_line(const json::value& value) {
  std::string line = safe_json(json_text(value));
  line += '\n';
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "standard output cannot be written");
  }
}

}  // namespace slime
