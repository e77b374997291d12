#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

constexpr int kMaxWidth = 1'000'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: the type's own
  char sign = '-';
  bool alternate = false;
  int width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

int read_number(std::string_view text, std::size_t& at, int if_absent) {
  if (at >= text.size() || text[at] < '0' || text[at] > '9') return if_absent;
  int number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) fail_limit("a format is wider than a million characters");
  }
  return number;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  std::size_t behind_fill = 0;
  if (!text.empty()) next_point(text, behind_fill);
  if (behind_fill < text.size() && is_align(text[behind_fill])) {
    spec.fill = text.substr(0, behind_fill);
    spec.align = text[behind_fill];
    at = behind_fill + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view options) -> char {
    return at < text.size() && options.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(text, at, 0);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    spec.precision = read_number(text, at, -1);
    if (spec.precision < 0) fail_type("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail_type(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

std::string padded(const Spec& spec, std::string_view sign, std::string body, char own_align,
                   Budget& budget) {
  const int missing = spec.width - static_cast<int>(count_points(body) + sign.size());
  const char align = spec.align == 0 ? own_align : spec.align;
  if (missing <= 0) return std::string(sign) + body;
  budget.take_bytes(static_cast<std::size_t>(missing) * spec.fill.size());
  if (align == '<') return std::string(sign) + body + repeat(spec.fill, missing);
  if (align == '=') return std::string(sign) + repeat(spec.fill, missing) + body;
  if (align == '>') return repeat(spec.fill, missing) + std::string(sign) + body;
  return repeat(spec.fill, missing / 2) + std::string(sign) + body +
         repeat(spec.fill, missing - missing / 2);
}

std::string with_groups(std::string digits, char separator) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
  return digits;
}

std::string in_base(Integer value, unsigned base, bool upper) {
  const std::string_view alphabet = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += alphabet[static_cast<std::size_t>(value % base)];
    value /= base;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_digits(double magnitude, char type, int precision, bool alternate) {
  if (std::isnan(magnitude)) return std::isupper(type) ? "NAN" : "nan";
  if (std::isinf(magnitude)) return std::isupper(type) ? "INF" : "inf";
  const std::string pattern = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, magnitude);
  std::string out(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), pattern.c_str(), precision, magnitude);
  out.pop_back();
  return out;
}

std::string format_float(double number, const Spec& spec, Budget& budget) {
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  if (spec.precision > 0) budget.take_bytes(static_cast<std::size_t>(spec.precision));
  std::string body;
  if (spec.type == 0) {
    body = spec.precision < 0 ? repr_of_float(magnitude)
                              : float_digits(magnitude, 'g', spec.precision, spec.alternate);
    // Without a type at least one digit stands behind the point.
    if (spec.precision >= 0 && body.find_first_not_of("0123456789") == std::string::npos)
      body += ".0";
  } else if (spec.type == '%') {
    body = float_digits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision,
                        spec.alternate) +
           "%";
  } else {
    body =
        float_digits(magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  }
  if (spec.grouping != 0) body = with_groups(std::move(body), spec.grouping);
  const std::string_view sign = negative           ? "-"
                                : spec.sign == '-' ? ""
                                : spec.sign == '+' ? "+"
                                                   : " ";
  return padded(spec, sign, std::move(body), '>', budget);
}

std::string format_integer(Integer value, const Spec& spec, Budget& budget) {
  const bool negative = value < 0;
  std::string body;
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const Integer magnitude = negative ? -value : value;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      body = to_decimal(magnitude);
      break;
    case 'x':
      body = in_base(magnitude, 16, false);
      break;
    case 'X':
      body = in_base(magnitude, 16, true);
      break;
    case 'o':
      body = in_base(magnitude, 8, false);
      break;
    case 'b':
      body = in_base(magnitude, 2, false);
      break;
    default:
      break;
  }
  if (spec.alternate && spec.type != 0 && spec.type != 'd') sign += std::string("0") + spec.type;
  if (spec.grouping != 0) body = with_groups(std::move(body), spec.grouping);
  return padded(spec, sign, std::move(body), '>', budget);
}

bool is_one_of(char c, std::string_view options) {
  return c != 0 && options.find(c) != std::string_view::npos;
}

std::string format_percent_item(const Value& value, Spec spec, Budget& budget) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = spec.type == 's' ? to_str(value) : repr(value);
      if (spec.precision >= 0)
        text.resize(byte_offset(text, static_cast<std::size_t>(spec.precision)));
      if (spec.align == '=') spec.align = '>', spec.fill = " ";
      return padded(spec, "", std::move(text), '>', budget);
    }
    case 'c': {
      if (const std::string* text = value.if_string()) return padded(spec, "", *text, '>', budget);
      std::string text;
      append_point(static_cast<char32_t>(to_index(value.if_integer().value_or(0xfffd))) & 0x1fffff,
                   text);
      return padded(spec, "", std::move(text), '>', budget);
    }
    default:
      break;
  }
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  const auto number = value.if_number();
  const bool integral = is_one_of(spec.type, "diuxXo");
  if (!number && !integral)
    fail_type(fmt::format("must be real number, not {}", value.type_name()));
  if (!number) {
    fail_type(
        fmt::format("%{} format: a real number is required, not {}", spec.type, value.type_name()));
  }
  if (!integral) return format_float(*number, spec, budget);
  if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
  if (const std::string* big = value.if_big_integer()) {
    if (spec.type != 'd') fail_limit("an integer of more than 128 bits");
    return padded(spec, "", *big, '>', budget);
  }
  const int digits = spec.precision;
  const Integer integer = value.if_float() != nullptr
                              ? static_cast<Integer>(std::clamp(*number, -1e30, 1e30))
                              : *value.if_integer();
  if (digits > 0) {  // %.3d: at least three digits
    Spec inner = spec;
    inner.width = digits + (integer < 0 ? 1 : 0);
    inner.fill = "0";
    inner.align = '=';
    return padded(spec, "", format_integer(integer, inner, budget), '>', budget);
  }
  return format_integer(integer, spec, budget);
}

/// The field of a replacement: 0.name[key].
Value resolve_field(std::string_view field, const Arguments& arguments, std::size_t& next_index,
                    Budget& budget) {
  const std::size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view head = field.substr(0, end);
  Value value;
  const bool is_index = head.find_first_not_of("0123456789") == std::string_view::npos;
  if (is_index) {
    std::size_t at = 0;
    const std::size_t index =
        head.empty() ? next_index++ : static_cast<std::size_t>(read_number(head, at, 0));
    if (index >= arguments.positional.size()) {
      fail_type(fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    value = arguments.positional[index];
  } else {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& n) { return n.first == head; });
    if (found == arguments.named.end()) fail_type(repr_of_text(head));
    value = found->second;
  }
  std::size_t at = end;
  while (at < field.size()) {
    const bool bracket = field[at] == '[';
    const std::size_t stop =
        bracket ? field.find(']', at) : std::min(field.find_first_of(".[", at + 1), field.size());
    if (stop == std::string_view::npos) fail_type("expected '}' before end of string");
    const std::string_view name = field.substr(at + 1, stop - at - 1);
    const Dict* dict = value.if_dict();
    const Value* member = dict == nullptr ? nullptr : dict->find(name, budget);
    if (const Sequence* list = value.if_indexable(); bracket && list != nullptr) {
      std::size_t position = 0;
      const auto index = static_cast<std::size_t>(read_number(name, position, kMaxWidth));
      if (index < list->items.size()) member = &list->items[index];
    }
    if (member == nullptr) fail_type(repr_of_text(name));
    const Value inner = *member;
    value = inner;
    at = bracket ? stop + 1 : stop;
  }
  return value;
}

}  // namespace

std::string format_value(const Value& value, std::string_view spec_text, Budget& budget) {
  const Spec spec = parse_spec(spec_text);
  if (spec_text.empty()) return paid_text(value, budget);
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  if (const std::string* text = value.if_string()) {
    if (spec.type != 0 && spec.type != 's') {
      fail_type(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
    }
    const std::size_t end = spec.precision < 0
                                ? text->size()
                                : byte_offset(*text, static_cast<std::size_t>(spec.precision));
    return padded(spec, "", text->substr(0, end), '<', budget);
  }
  const auto number = value.if_number();
  if (!number)
    fail_type(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
  if (is_one_of(spec.type, "eEfFgG%") || (value.if_float() != nullptr && spec.type == 0)) {
    return format_float(*number, spec, budget);
  }
  if (value.if_float() != nullptr || (spec.type != 0 && !is_one_of(spec.type, "dnxXob"))) {
    fail_type(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                          value.type_name()));
  }
  if (value.if_big_integer() != nullptr) {
    if (spec.type != 0 && spec.type != 'd') fail_limit("an integer of more than 128 bits");
    return padded(spec, "", to_str(value), '>', budget);
  }
  if (value.if_bool() != nullptr && spec.type == 0)
    return padded(spec, "", to_str(value), '<', budget);
  return format_integer(*value.if_integer(), spec, budget);
}

std::string percent_format(std::string_view format, const Value& values, Budget& budget) {
  budget.take_bytes(format.size() + static_cast<std::size_t>(values.extent().size));
  const Sequence* tuple = values.if_sequence();
  if (tuple != nullptr && tuple->kind != SequenceKind::kTuple) tuple = nullptr;
  const Dict* dict = values.if_dict();
  std::size_t used = 0;
  const auto next_value = [&]() -> Value {
    if (tuple == nullptr && used++ == 0) return values;
    if (tuple == nullptr || used >= tuple->items.size())
      fail_type("not enough arguments for format string");
    return tuple->items[used++];
  };
  std::string out;
  std::size_t at = 0;
  while (at < format.size()) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    if (++at >= format.size()) fail_type("incomplete format");
    if (format[at] == '%') {
      out += format[at++];
      continue;
    }
    std::optional<Value> named;
    if (format[at] == '(') {
      const std::size_t end = format.find(')', at);
      if (end == std::string_view::npos) fail_type("incomplete format key");
      if (dict == nullptr) fail_type("format requires a mapping");
      const std::string_view name = format.substr(at + 1, end - at - 1);
      const Value* member = dict->find(name, budget);
      if (member == nullptr) fail_type(repr_of_text(name));
      named = *member;
      ++used;
      at = end + 1;
    }
    Spec spec;
    for (; at < format.size() && is_one_of(format[at], "#0- +"); ++at) {
      if (format[at] == '#') spec.alternate = true;
      if (format[at] == '-') spec.align = '<', spec.fill = " ";
      if (format[at] == '0' && spec.align == 0) spec.align = '=', spec.fill = "0";
      if (format[at] == '+') spec.sign = '+';
      if (format[at] == ' ' && spec.sign == '-') spec.sign = ' ';
    }
    spec.width = read_number(format, at, 0);
    if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at, 0);
    if (at >= format.size()) fail_type("incomplete format");
    spec.type = format[at++];
    if (!is_one_of(spec.type, "sradiuxXoeEfFgGc")) {
      fail_type(fmt::format("unsupported format character '{}'", spec.type));
    }
    const Value item = named ? *named : next_value();
    budget.take_bytes(static_cast<std::size_t>(item.extent().size));
    const std::string piece = format_percent_item(item, spec, budget);
    budget.take_bytes(piece.size());
    out += piece;
  }
  const bool all_used = tuple == nullptr
                            ? used > 0 || dict != nullptr || values.if_sequence() != nullptr
                            : used == tuple->items.size();
  if (!all_used) fail_type("not all arguments converted during string formatting");
  return out;
}

std::string brace_format(std::string_view format, const Arguments& arguments, Budget& budget) {
  std::string out;
  std::size_t next_index = 0;
  std::size_t at = 0;
  while (at < format.size()) {
    const char c = format[at++];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at < format.size() && format[at] == c) {
      out += c;
      ++at;
      continue;
    }
    if (c == '}') fail_type("Single '}' encountered in format string");
    const std::size_t end = format.find('}', at);
    if (end == std::string_view::npos) fail_type("expected '}' before end of string");
    std::string_view inside = format.substr(at, end - at);
    at = end + 1;
    if (inside.find('{') != std::string_view::npos)
      fail_type("nested replacement fields are not supported");
    std::string_view spec;
    if (const std::size_t colon = inside.find(':'); colon != std::string_view::npos) {
      spec = inside.substr(colon + 1);
      inside = inside.substr(0, colon);
    }
    char conversion = 0;
    if (const std::size_t mark = inside.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != inside.size()) fail_type("expected ':' after conversion specifier");
      conversion = inside[mark + 1];
      inside = inside.substr(0, mark);
    }
    Value value = resolve_field(inside, arguments, next_index, budget);
    budget.take_bytes(static_cast<std::size_t>(value.extent().size));
    if (conversion == 'r') value = repr(value);
    if (conversion == 's') value = to_str(value);
    const std::string piece = format_value(value, spec, budget);
    budget.take_bytes(piece.size());
    out += piece;
  }
  return out;
}

}  // namespace slime::text::jinja
