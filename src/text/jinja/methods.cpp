#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

using MethodFn = Value (*)(Interpreter&, const Value& self, Arguments arguments);

const std::string& self_text(const Value& self) { return *self.if_string(); }

/// An argument that Python wants as str; None where it may be absent.
std::optional<std::string> text_or_none(const BoundArguments& bound, std::size_t index,
                                        std::string_view function) {
  const Value* value = bound.find(index);
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (value->is_undefined()) fail_undefined(value->undefined_reason());
  if (value->if_string() == nullptr) {
    fail_type(fmt::format("{}() argument must be str, not {}", function, value->type_name()));
  }
  return *value->if_string();
}

std::string required_text(const BoundArguments& bound, std::size_t index,
                          std::string_view function) {
  bound.require(index);
  auto text = text_or_none(bound, index, function);
  if (!text) fail_type(fmt::format("{}() argument must be str, not NoneType", function));
  return *std::move(text);
}

Value views(const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.emplace_back(part);
  return make_list(std::move(items));
}

void pay(Interpreter& run, std::string_view text) {
  run.budget().take_bytes(text.size() + sizeof(Value));
}

template <std::string (*convert)(std::string_view)>
Value converted(Interpreter& run, const Value& self, Arguments arguments) {
  BoundArguments("str method", std::move(arguments), {});
  pay(run, self_text(self));
  return convert(self_text(self));
}

template <std::string_view (*strip)(std::string_view, const std::optional<std::string>&)>
Value strips(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("strip", std::move(arguments), {"chars"});
  pay(run, self_text(self));
  return strip(self_text(self), text_or_none(bound, 0, "strip"));
}

template <bool from_right>
Value splits(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("split", std::move(arguments), {"sep", "maxsplit"});
  const auto separator = text_or_none(bound, 0, "split");
  if (separator && separator->empty()) fail_type("empty separator");
  run.budget().take_bytes(self_text(self).size() * 2);
  if (separator) run.budget().take_pass(separator->size());
  const int64_t limit = bound.index(1, -1);
  const auto parts = from_right ? split_from_right(self_text(self), separator, limit)
                                : split(self_text(self), separator, limit);
  run.budget().take_bytes(parts.size() * (sizeof(Value) + sizeof(std::string)));
  return views(parts);
}

Value splitlines(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("splitlines", std::move(arguments), {"keepends"});
  const auto parts = split_lines(self_text(self), bound.flag(0, false));
  run.budget().take_bytes(self_text(self).size() +
                          parts.size() * (sizeof(Value) + sizeof(std::string)));
  return views(parts);
}

/// self[start:end] of find, count, startswith; bounds in code points.
std::string_view window(const Value& self, const BoundArguments& bound, std::size_t first,
                        int64_t& offset) {
  const std::string_view text = self_text(self);
  offset = 0;
  if (bound.find(first) == nullptr && bound.find(first + 1) == nullptr) return text;
  const auto size = static_cast<int64_t>(count_points(text));
  const auto clamp = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  if (bound.index(first, 0) > size) {
    offset = -1;  // beyond the end not even an empty text is found
    return {};
  }
  const int64_t start = clamp(bound.index(first, 0));
  const int64_t end = std::max(start, clamp(bound.index(first + 1, size)));
  offset = start;
  const std::size_t from = byte_offset(text, static_cast<std::size_t>(start));
  return text.substr(from, byte_offset(text, static_cast<std::size_t>(end)) - from);
}

template <bool at_start>
Value starts_or_ends(Interpreter& run, const Value& self, Arguments arguments) {
  constexpr std::string_view kName = at_start ? "startswith" : "endswith";
  const BoundArguments bound(kName, std::move(arguments), {"prefix", "start", "end"});
  if (bound.find(1) != nullptr || bound.find(2) != nullptr)
    run.budget().take_pass(self_text(self).size());
  int64_t offset = 0;
  const std::string_view text = window(self, bound, 1, offset);
  const auto matches = [&](const std::string& part) {
    run.budget().take_pass(std::min(part.size(), text.size()));
    return offset >= 0 && (at_start ? text.starts_with(part) : text.ends_with(part));
  };
  const Value& wanted = bound.require(0);
  if (const Sequence* tuple = wanted.if_sequence();
      tuple != nullptr && tuple->kind == SequenceKind::kTuple) {
    run.budget().take_steps(tuple->items.size());
    return std::any_of(tuple->items.begin(), tuple->items.end(), [&](const Value& part) {
      if (part.if_string() == nullptr)
        fail_type(
            fmt::format("tuple for {} must only contain str, not {}", kName, part.type_name()));
      return matches(*part.if_string());
    });
  }
  if (wanted.if_string() == nullptr) {
    fail_type(fmt::format("{} first arg must be str or a tuple of str, not {}", kName,
                          wanted.type_name()));
  }
  return matches(*wanted.if_string());
}

template <bool from_right, bool must_be_found>
Value finds(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("find", std::move(arguments), {"sub", "start", "end"});
  const std::string part = required_text(bound, 0, "find");
  run.budget().take_pass(self_text(self).size() * 2 + part.size());
  int64_t offset = 0;
  const std::string_view text = window(self, bound, 1, offset);
  const std::size_t found = offset < 0   ? std::string_view::npos
                            : from_right ? find_last_part(text, part)
                                         : find_part(text, part);
  if (found != std::string_view::npos)
    return offset + static_cast<int64_t>(count_points(text.substr(0, found)));
  if (must_be_found) fail_type("substring not found");
  return -1;
}

Value count(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("count", std::move(arguments), {"sub", "start", "end"});
  const std::string part = required_text(bound, 0, "count");
  run.budget().take_pass(self_text(self).size() * 2 + part.size());
  int64_t offset = 0;
  const std::string_view text = window(self, bound, 1, offset);
  return offset < 0 ? Value(0) : Value(count_occurrences(text, part));
}

Value replace(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("replace", std::move(arguments), {"old", "new", "count"});
  const std::string from = required_text(bound, 0, "replace");
  const std::string to = required_text(bound, 1, "replace");
  run.budget().take_pass(self_text(self).size() + from.size());
  const std::size_t found = count_occurrences(self_text(self), from);
  if (!to.empty() && found > (std::size_t{1} << 40) / to.size()) run.budget().take_bytes(SIZE_MAX);
  run.budget().take_bytes(self_text(self).size() + found * to.size());
  return replaced(self_text(self), from, to, bound.index(2, -1));
}

Value join(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("join", std::move(arguments), {"iterable"});
  std::string out;
  std::size_t index = 0;
  for (const Value& item : iterate(bound.require(0), run.budget())) {
    const std::string* text = item.if_string();
    if (text == nullptr)
      fail_type(fmt::format("sequence item {}: expected str instance, {} found", index,
                            item.type_name()));
    run.budget().take_bytes(text->size() + self_text(self).size());
    if (index++ > 0) out += self_text(self);
    out += *text;
  }
  return out;
}

Value format(Interpreter& run, const Value& self, Arguments arguments) {
  return brace_format(self_text(self), arguments, run.budget());
}

template <bool is_prefix>
Value removes(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("removeprefix", std::move(arguments), {"prefix"});
  const std::string part = required_text(bound, 0, "removeprefix");
  std::string_view text = self_text(self);
  pay(run, text);
  if (is_prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!is_prefix && !part.empty() && text.ends_with(part)) text.remove_suffix(part.size());
  return text;
}

template <bool from_right>
Value partition(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("partition", std::move(arguments), {"sep"});
  const std::string separator = required_text(bound, 0, "partition");
  if (separator.empty()) fail_type("empty separator");
  const std::string_view text = self_text(self);
  pay(run, text);
  const std::size_t found =
      from_right ? find_last_part(text, separator) : find_part(text, separator);
  if (found == std::string_view::npos) {
    return from_right ? make_tuple({"", "", text}) : make_tuple({text, "", ""});
  }
  return make_tuple({text.substr(0, found), separator, text.substr(found + separator.size())});
}

template <std::string (*pad)(Budget&, std::string, int64_t, std::string_view)>
Value pads(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("just", std::move(arguments), {"width", "fillchar"});
  bound.require(0);
  const std::string fill = text_or_none(bound, 1, "just").value_or(" ");
  if (count_points(fill) != 1) fail_type("The fill character must be exactly one character long");
  pay(run, self_text(self));
  return pad(run.budget(), self_text(self), bound.index(0, 0), fill);
}

Value zfill(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("zfill", std::move(arguments), {"width"});
  bound.require(0);
  const std::string& text = self_text(self);
  pay(run, text);
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return (has_sign ? text.substr(0, 1) : "") +
         padded_left(run.budget(), text.substr(has_sign ? 1 : 0),
                     bound.index(0, 0) - (has_sign ? 1 : 0), "0");
}

template <bool (*holds)(char32_t)>
Value all_are(Interpreter& run, const Value& self, Arguments arguments) {
  BoundArguments("str method", std::move(arguments), {});
  const std::string& text = self_text(self);
  run.budget().take_pass(text.size() * 4);
  for (std::size_t at = 0; at < text.size();) {
    if (!holds(next_point(text, at))) return false;
  }
  return !text.empty();
}

bool is_decimal_digit(char32_t point) { return point >= '0' && point <= '9'; }
bool is_alphanumeric(char32_t point) { return is_alphabetic(point) || is_numeric(point); }

template <bool (*is_case)(char32_t), bool (*is_other)(char32_t)>
Value has_case(Interpreter& run, const Value& self, Arguments arguments) {
  BoundArguments("str method", std::move(arguments), {});
  const std::string& text = self_text(self);
  run.budget().take_pass(text.size() * 4);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (is_other(point)) return false;
    any |= is_case(point);
  }
  return any;
}

Value list_index(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("index", std::move(arguments), {"value"});
  const auto& items = self.if_sequence()->items;
  const auto found = std::find_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, bound.require(0), run.budget());
  });
  if (found == items.end()) {
    run.budget().take_bytes(static_cast<std::size_t>(bound.require(0).extent().size));
    fail_type(fmt::format("{} is not in list", repr(bound.require(0))));
  }
  return static_cast<int64_t>(found - items.begin());
}

Value list_count(Interpreter& run, const Value& self, Arguments arguments) {
  const BoundArguments bound("count", std::move(arguments), {"value"});
  const auto& items = self.if_sequence()->items;
  return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, bound.require(0), run.budget());
  }));
}

Value copy(Interpreter&, const Value& self, Arguments arguments) {
  BoundArguments("copy", std::move(arguments), {});
  return self;
}

template <SequenceKind kind>
Value dict_view(Interpreter& run, const Value& self, Arguments arguments) {
  BoundArguments("dict method", std::move(arguments), {});
  const Dict& dict = *self.if_dict();
  constexpr std::size_t kItemBytes =
      sizeof(Value) +
      (kind == SequenceKind::kItems ? sizeof(Sequence) + 2 * sizeof(Value) : std::size_t{0});
  run.budget().take_bytes(dict.members.size() * kItemBytes);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members) {
    items.push_back(kind == SequenceKind::kKeys     ? key
                    : kind == SequenceKind::kValues ? value
                                                    : make_tuple({key, value}));
  }
  return make_sequence(kind, std::move(items));
}

Value get(Interpreter& run, const Value& self, Arguments arguments) {
  if (!arguments.named.empty()) fail_type("dict.get() takes no keyword arguments");
  const BoundArguments bound("get", std::move(arguments), {"key", "default"});
  if (!is_hashable(bound.require(0), run.budget()))
    fail_type(fmt::format("unhashable type: '{}'", bound.require(0).type_name()));
  if (const Value* value = self.if_dict()->find(bound.require(0), run.budget())) return *value;
  return bound.find(1) == nullptr ? Value(None{}) : *bound.find(1);
}

using Methods = std::unordered_map<std::string_view, MethodFn>;

const Methods& str_methods() {
  static const Methods kMethods = {
      {"capitalize", converted<capitalized>},
      {"casefold", converted<to_lower>},
      {"center", pads<centered>},
      {"count", count},
      {"endswith", starts_or_ends<false>},
      {"find", finds<false, false>},
      {"format", format},
      {"index", finds<false, true>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_alphabetic>},
      {"isdecimal", all_are<is_decimal_digit>},
      {"isdigit", all_are<is_decimal_digit>},
      {"islower", has_case<is_lower, is_upper>},
      {"isnumeric", all_are<is_numeric>},
      {"isspace", all_are<is_space>},
      {"isupper", has_case<is_upper, is_lower>},
      {"join", join},
      {"ljust", pads<padded_right>},
      {"lower", converted<to_lower>},
      {"lstrip", strips<stripped_left>},
      {"partition", partition<false>},
      {"removeprefix", removes<true>},
      {"removesuffix", removes<false>},
      {"replace", replace},
      {"rfind", finds<true, false>},
      {"rindex", finds<true, true>},
      {"rjust", pads<padded_left>},
      {"rpartition", partition<true>},
      {"rsplit", splits<true>},
      {"rstrip", strips<stripped_right>},
      {"split", splits<false>},
      {"splitlines", splitlines},
      {"startswith", starts_or_ends<true>},
      {"strip", strips<stripped>},
      {"swapcase", converted<with_swapped_case>},
      {"title", converted<to_title>},
      {"upper", converted<to_upper>},
      {"zfill", zfill},
  };
  return kMethods;
}

const Methods& list_methods() {
  static const Methods kMethods = {{"copy", copy}, {"count", list_count}, {"index", list_index}};
  return kMethods;
}

const Methods& dict_methods() {
  static const Methods kMethods = {
      {"copy", copy},
      {"get", get},
      {"items", dict_view<SequenceKind::kItems>},
      {"keys", dict_view<SequenceKind::kKeys>},
      {"values", dict_view<SequenceKind::kValues>},
  };
  return kMethods;
}

bool changes_list(std::string_view name) {
  constexpr std::string_view kNames[] = {"append", "clear",  "extend",  "insert",
                                         "pop",    "remove", "reverse", "sort"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool changes_dict(std::string_view name) {
  constexpr std::string_view kNames[] = {"clear", "pop", "popitem", "setdefault", "update"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value refused(const Value& value, std::string_view name) {
  return make_undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe: values cannot be changed, "
                  "use + to build new ones",
                  name, value.type_name()));
}

}  // namespace

std::optional<Value> find_method(const Value& value, std::string_view name) {
  const Methods* methods = nullptr;
  const Sequence* sequence = value.if_sequence();
  if (value.if_string() != nullptr) {
    methods = &str_methods();
  } else if (value.if_dict() != nullptr) {
    if (changes_dict(name)) return refused(value, name);
    methods = &dict_methods();
  } else if (sequence != nullptr && sequence->kind == SequenceKind::kList) {
    if (changes_list(name)) return refused(value, name);
    methods = &list_methods();
  } else if (sequence != nullptr && sequence->kind == SequenceKind::kTuple && name != "copy") {
    methods = &list_methods();
  }
  if (methods == nullptr) return std::nullopt;
  const auto found = methods->find(name);
  if (found == methods->end()) return std::nullopt;
  auto function = std::make_shared<Function>();
  function->repr = "<method>";
  function->call = [self = value, method = found->second](Interpreter& run, Arguments arguments) {
    run.pay_look(self);
    return method(run, self, std::move(arguments));
  };
  return std::shared_ptr<const Function>(std::move(function));
}

}  // namespace slime::text::jinja
