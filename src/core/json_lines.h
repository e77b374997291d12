#pragma once

/// Line-wise JSON in and out: the form every small tool speaks.
///
///   JsonLines input(file);                       // "" or "-" is standard input
///   while (auto object = input.next())
///     write_json_line({{"length", input.fields(*object).text("text")->size()}});

#include <cstdint>
#include <fstream>
#include <istream>
#include <optional>
#include <string>

#include "core/field_reader.h"
#include "core/json.h"

namespace slime {

/// Reads one JSON object per line; blank lines and a byte-order mark are skipped. Every problem is a
/// ConfigError that names file and line, so the program ends with exit code 2; one of them is a key
/// that an object has twice.
class JsonLines final {
 public:
  static constexpr std::size_t kLineLimitBytes = std::size_t{256} << 20;

  /// Throws ConfigError when the file cannot be opened, or is a directory.
  explicit JsonLines(const std::string& file, std::size_t line_limit_bytes = kLineLimitBytes);
  /// For tests: reads `stream`, called `name` in messages.
  JsonLines(std::istream& stream, std::string name, std::size_t line_limit_bytes = kLineLimitBytes);

  /// The next object, or nothing at the end.
  std::optional<json::object> next();

  /// The file, or "standard input".
  const std::string& name() const { return name_; }

  /// Of the object that next() returned last: "standard input, line 7".
  std::string where() const;

  /// The fields of that object, required; a problem is a ConfigError.
  FieldReader fields(const json::object& object) const;

 private:
  bool read_line(std::string& line);

  std::ifstream file_;
  std::istream* stream_;
  std::string name_;
  std::size_t line_limit_bytes_;
  int64_t line_number_ = 0;
};

/// One line to standard output, flushed: a reader at the other end of a pipe sees it at once.
/// Safe on a terminal (core/safe_text.h).
/// Throws std::system_error when it cannot be written (full disk, closed pipe).
void write_json_line(const json::value& value);

}  // namespace slime
