#include "text/jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/budget.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

void append_repr(const Value& value, std::string& out);

void append_items(const Sequence& sequence, std::string& out) {
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out += ", ";
    first = false;
    append_repr(item, out);
  }
}

void append_sequence(const Sequence& sequence, std::string& out) {
  switch (sequence.kind) {
    case SequenceKind::kRange:
      out += sequence.range_repr;
      return;
    case SequenceKind::kGenerator:
      out += "<generator object>";
      return;
    case SequenceKind::kTuple:
      out += '(';
      append_items(sequence, out);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::kKeys:
      out += "dict_keys([";
      break;
    case SequenceKind::kValues:
      out += "dict_values([";
      break;
    case SequenceKind::kItems:
      out += "dict_items([";
      break;
    case SequenceKind::kList:
      out += '[';
      break;
  }
  append_items(sequence, out);
  out += sequence.kind == SequenceKind::kList ? "]" : "])";
}

void append_repr(const Value& value, std::string& out) {
  if (const std::string* text = value.if_string()) {
    out += repr_of_text(*text);
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const Sequence* sequence = value.if_sequence()) {
    append_sequence(*sequence, out);
  } else if (const Dict* dict = value.if_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, element] : dict->members) {
      if (!first) out += ", ";
      first = false;
      append_repr(key, out);
      out += ": ";
      append_repr(element, out);
    }
    out += '}';
  } else {
    out += to_str(value);
  }
}

void append_json_text(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  std::size_t at = 0;
  while (at < text.size()) {
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      ++at;
      switch (byte) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\f':
          out += "\\f";
          break;
        case '\b':
          out += "\\b";
          break;
        default:
          if (byte < 0x20 || (byte == 0x7f && ensure_ascii)) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
          } else {
            out += static_cast<char>(byte);
          }
      }
      continue;
    }
    const std::size_t start = at;
    const char32_t point = next_point(text, at);
    if (!ensure_ascii) {
      out.append(text.substr(start, at - start));
    } else if (point < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      const uint32_t offset = static_cast<uint32_t>(point) - 0x10000;
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xd800 + (offset >> 10),
                     0xdc00 + (offset & 0x3ff));
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, std::size_t level) {
    if (out_.size() > style_.limit_bytes) fail_limit("tojson writes too much text");
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* boolean = value.if_bool()) {
      out_ += *boolean ? "true" : "false";
    } else if (const auto integer = value.if_integer()) {
      out_ += to_decimal(*integer);
    } else if (const std::string* digits = value.if_big_integer()) {
      out_ += *digits;
    } else if (const double* number = value.if_float()) {
      out_ += json_float(*number);
    } else if (const std::string* text = value.if_string()) {
      append_json_text(*text, style_.ensure_ascii, out_);
    } else if (const Dict* dict = value.if_dict()) {
      write_dict(*dict, level);
    } else if (const Sequence* sequence = value.if_sequence();
               sequence != nullptr &&
               (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
      write_list(*sequence, level);
    } else {
      fail_type(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string json_float(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return repr_of_float(number);
  }

  static std::string key_text(const Value& key) {
    if (const std::string* text = key.if_string()) return *text;
    if (const double* number = key.if_float()) return json_float(*number);
    if (key.is_none()) return "null";
    if (const bool* boolean = key.if_bool()) return *boolean ? "true" : "false";
    if (const auto integer = key.if_integer()) return to_decimal(*integer);
    if (const std::string* digits = key.if_big_integer()) return *digits;
    fail_type(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
  }

  void new_line(std::size_t level) {
    if (!style_.indent) return;
    out_ += '\n';
    if (style_.indent->size() * level > style_.limit_bytes) fail_limit("tojson indents too far");
    for (std::size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void write_list(const Sequence& list, std::size_t level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(level + 1);
      write(item, level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, std::size_t level) {
    if (dict.members.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(), [](const auto* a, const auto* b) {
        return key_text(a->first) < key_text(b->first);
      });
    }
    out_ += '{';
    bool first = true;
    for (const auto* member : members) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(level + 1);
      append_json_text(key_text(member->first), style_.ensure_ascii, out_);
      out_ += style_.key_separator;
      write(member->second, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_decimal(Integer value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  // Negated digit by digit: the smallest integer has no positive twin.
  std::string digits;
  while (value != 0) {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string repr_of_float(double value) { return python_float_text(value); }

std::string repr_of_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t start = at;
    const auto point = static_cast<uint32_t>(next_point(text, at));
    if (point == static_cast<unsigned char>(quote) || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      out.append(text.substr(start, at - start));
    } else if (point < 0x100) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", point);
    } else if (point < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", point);
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08x}", point);
    }
  }
  return out += quote;
}

std::string to_str(const Value& value) {
  if (const std::string* text = value.if_string()) return *text;
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (const bool* boolean = value.if_bool()) return *boolean ? "True" : "False";
  if (const auto integer = value.if_integer()) return to_decimal(*integer);
  if (const std::string* digits = value.if_big_integer()) return *digits;
  if (const double* number = value.if_float()) return repr_of_float(*number);
  if (const Function* function = value.if_function()) return function->repr;
  if (const Object* object = value.if_object()) return object->repr();
  return repr(value);
}

std::string paid_text(const Value& value, Budget& budget) {
  budget.take_bytes(static_cast<std::size_t>(value.extent().size));
  return to_str(value);
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(value, out);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace slime::text::jinja
