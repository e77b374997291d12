// One file because reading and writing share the form of a long whole number.

#include "core/json.h"

#include <fmt/format.h>

#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "core/expected.h"
#include "core/json_events.h"
#include "core/regular_file.h"

namespace slime {
namespace {

/// The one key of the object that stands for a whole number of more than 64 bits. Texts with this
/// key are refused, so that none of them is taken for a number.
constexpr std::string_view kDigitsKey =
    "\x01"
    "digits";
/// Python's int() stops there too (sys.int_info.default_max_str_digits).
constexpr std::size_t kMostDigits = 4300;

void append_quoted(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::string_view kShort = "btn?fr";  // \b is 8
  out += '"';
  std::size_t begin = 0;  // of what is not yet written
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out += text.substr(begin, at - begin);
    begin = at + 1;
    out += '\\';
    if (byte >= 0x20) {
      out += text[at];
    } else if (byte >= 8 && byte <= 13 && byte != 11) {
      out += kShort[byte - 8];
    } else {
      out += "u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out += text.substr(begin);
  out += '"';
}

template <typename Number>
void append_digits(Number number, std::string& out) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, number).ptr);
}

/// The shortest digits that mean the number. Python's float_repr_style "short": an exponent below -4 or
/// from 16 on is written out.
void append_finite(double number, std::string& out) {
  char text[40];
  const char* end =
      std::to_chars(text, text + sizeof text, number, std::chars_format::scientific).ptr;
  const char* at = text;
  if (*at == '-') out += *at++;
  char digits[24];
  std::size_t count = 0;
  for (; *at != 'e'; ++at)
    if (*at != '.') digits[count++] = *at;
  int exponent = 0;
  std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(1, '.').append(digits + 1, count - 1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    append_digits(std::abs(exponent), out);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits, count);
  } else if (count <= static_cast<std::size_t>(exponent) + 1) {
    out.append(digits, count).append(static_cast<std::size_t>(exponent) + 1 - count, '0');
    out += ".0";
  } else {
    const auto point = static_cast<std::size_t>(exponent) + 1;
    out.append(digits, point).append(1, '.').append(digits + point, count - point);
  }
}

void append_object(const json::object& object, std::string& out) {
  if (object.size() == 1 && std::string_view(object.begin()->key()) == kDigitsKey) {
    out += std::string_view(object.begin()->value().get_string());
    return;
  }
  out += '{';
  bool is_first = true;
  for (const auto& member : object) {
    if (!std::exchange(is_first, false)) out += ',';
    append_quoted(member.key(), out);
    out += ':';
    append_json_text(member.value(), out);
  }
  out += '}';
}

void append_array(const json::array& array, std::string& out) {
  out += '[';
  bool is_first = true;
  for (const json::value& element : array) {
    if (!std::exchange(is_first, false)) out += ',';
    append_json_text(element, out);
  }
  out += ']';
}

void write_pretty(const json::value& value, std::string& out, int indent) {
  const auto newline = [&](int depth) {
    out += '\n';
    out.append(static_cast<std::size_t>(depth) * 2, ' ');
  };
  if (const auto* object = value.if_object();
      object != nullptr && !object->empty() && big_integer_digits(value) == nullptr) {
    out += '{';
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ',';
      first = false;
      newline(indent + 1);
      append_quoted(member.key(), out);
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
  append_json_text(value, out);
}

/// Builds a value, with numbers as the text has them.
struct ValueBuilder : JsonEvents {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  json::value_stack stack;
  std::string number;  // what came of one in parts
  std::string key;
  std::string problem;  // why on_... returned false

  bool refuse(std::string why, Code& error) {
    problem = std::move(why);
    error = json::error::syntax;
    return false;
  }
  std::string_view whole(json::string_view last) {
    if (number.empty()) return last;
    number += last;
    return number;
  }

  ValueBuilder() { stack.reset(); }
  bool on_object_end(std::size_t count, Code&) {
    stack.push_object(count);
    return true;
  }
  bool on_array_end(std::size_t count, Code&) {
    stack.push_array(count);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, Code&) {
    key += part;
    return true;
  }
  bool on_key(json::string_view part, std::size_t, Code& error) {
    key += part;
    if (key == kDigitsKey) return refuse("a key that begins with U+0001", error);
    stack.push_key(key);
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, Code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, Code&) {
    stack.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view part, Code&) {
    number += part;
    return true;
  }
  bool on_int64(std::int64_t value, json::string_view, Code&) {
    number.clear();
    stack.push_int64(value);
    return true;
  }
  bool on_uint64(std::uint64_t value, json::string_view, Code&) {
    number.clear();
    stack.push_uint64(value);
    return true;
  }
  bool on_double(double, json::string_view last, Code& error) {
    const std::string_view text = whole(last);
    if (text.find_first_of(".eE") == std::string_view::npos) {
      if (text.size() > kMostDigits)
        return refuse(fmt::format("a whole number of more than {} digits", kMostDigits), error);
      stack.push_key(kDigitsKey);
      stack.push_string(text);
      stack.push_object(1);
    } else {
      double nearest = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), nearest);
      if (read.ec == std::errc::result_out_of_range)
        nearest = std::strtod(std::string(text).c_str(), nullptr);
      stack.push_double(nearest);
    }
    number.clear();
    return true;
  }
  bool on_bool(bool value, Code&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(Code&) {
    stack.push_null();
    return true;
  }
};

/// The value, or what is wrong with the text.
Expected<json::value> parsed(std::string_view text) {
  json::basic_parser<ValueBuilder> parser(json_limits());
  json::error_code error;
  const std::size_t consumed = parser.write_some(false, text.data(), text.size(), error);
  if (error) {
    const std::string& problem = parser.handler().problem;
    return failure(fmt::format("not valid JSON: {} at byte {}",
                               problem.empty() ? error.message() : problem, consumed));
  }
  if (text.substr(consumed).find_first_not_of(" \t\r\n") != std::string_view::npos)
    return failure(fmt::format("text after the JSON value, at byte {}", consumed));
  return parser.handler().stack.release();
}

}  // namespace

json::value parse_json(std::string_view text, std::string_view where) {
  auto value = parsed(text);
  if (!value) throw ConfigError(fmt::format("{}: {}", where, value.error().message));
  return *std::move(value);
}

std::optional<json::value> try_parse_json(std::string_view text) {
  auto value = parsed(text);
  if (!value) return std::nullopt;
  return *std::move(value);
}

void append_json_text(const json::value& value, std::string& out) {
  switch (value.kind()) {
    case json::kind::null:
      out += "null";
      return;
    case json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case json::kind::int64:
      return append_digits(value.get_int64(), out);
    case json::kind::uint64:
      return append_digits(value.get_uint64(), out);
    case json::kind::double_: {
      const double number = value.get_double();
      if (std::isnan(number)) {
        out += "null";
      } else if (std::isinf(number)) {
        out += number > 0 ? "1e999" : "-1e999";
      } else {
        append_finite(number, out);
      }
      return;
    }
    case json::kind::string:
      return append_quoted(value.get_string(), out);
    case json::kind::array:
      return append_array(value.get_array(), out);
    case json::kind::object:
      return append_object(value.get_object(), out);
  }
}

std::string json_text(const json::value& value) {
  std::string out;
  append_json_text(value, out);
  return out;
}

std::string json_text(const json::object& object) {
  std::string out;
  append_object(object, out);
  return out;
}

std::string json_text(const json::array& array) {
  std::string out;
  append_array(array, out);
  return out;
}

std::string json_text(const json::string& text) { return json_text(std::string_view(text)); }

std::string json_text(std::string_view text) {
  std::string out;
  append_quoted(text, out);
  return out;
}

const json::string* big_integer_digits(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr || object->size() != 1 ||
      std::string_view(object->begin()->key()) != kDigitsKey)
    return nullptr;
  return &object->begin()->value().get_string();
}

json::value read_json_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  return parse_json(read_regular_file(path, limit_bytes, "JSON"), path.string());
}

std::string python_float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string out;
  append_finite(number, out);
  return out;
}

std::string to_pretty_json(const json::value& value) {
  std::string out;
  write_pretty(value, out, 0);
  out += '\n';
  return out;
}

}  // namespace slime
