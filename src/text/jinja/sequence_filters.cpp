// Filters on sequences.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

Value generator(std::vector<Value> items) {
  return make_sequence(SequenceKind::kGenerator, std::move(items));
}

/// Of a tuple of two values.
constexpr std::size_t kPairBytes = sizeof(Sequence) + 3 * sizeof(Value);

/// "user.name" and "parts.0": item by item.
Value attribute_path(Interpreter& run, Value value, const Value& path) {
  const std::string* text = path.if_string();
  if (text == nullptr) return run.item(value, path);
  run.budget().take_pass(text->size() * 16);
  for (const std::string_view part : split(*text, ".", -1)) {
    const bool is_index = !part.empty() && part.size() < 18 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    value = run.item(
        value, is_index ? Value(static_cast<int64_t>(std::stoll(std::string(part)))) : Value(part));
  }
  return value;
}

Value without_case(const Value& value, bool case_sensitive, Budget& budget) {
  const std::string* text = value.if_string();
  if (text == nullptr || case_sensitive) return value;
  budget.take_bytes(text->size());
  return to_lower(*text);
}

/// The value to sort, compare or sum by.
Value key_of(Interpreter& run, const Value& item, const Value* attribute, bool case_sensitive) {
  run.budget().take_steps();
  if (attribute == nullptr || attribute->is_none())
    return without_case(item, case_sensitive, run.budget());
  return without_case(attribute_path(run, item, *attribute), case_sensitive, run.budget());
}

/// Takes the first positional argument away.
Value take_first(Arguments& arguments, std::string_view what) {
  if (arguments.positional.empty()) fail_type(std::string(what));
  Value first = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

Value length_filter(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("length", std::move(arguments), {});
  return length(input, run.budget());
}

Value first(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("first", std::move(arguments), {});
  const std::vector<Value> items = iterate(input, run.budget());
  return items.empty() ? make_undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("last", std::move(arguments), {});
  if (const Sequence* sequence = input.if_sequence();
      sequence != nullptr && sequence->kind == SequenceKind::kGenerator) {
    fail_type("'generator' object is not reversible");
  }
  const std::vector<Value> items = iterate(input, run.budget());
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("join", std::move(arguments), {"d", "attribute"});
  const std::string separator = bound.text(0).value_or("");
  std::string out;
  bool is_first = true;
  for (const Value& item : iterate(input, run.budget())) {
    const Value value = bound.find(1) == nullptr ? item : attribute_path(run, item, *bound.find(1));
    run.budget().take_bytes(separator.size() + static_cast<std::size_t>(value.extent().size));
    if (!is_first) out += separator;
    is_first = false;
    out += to_str(value);
  }
  return out;
}

Value list_filter(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("list", std::move(arguments), {});
  return make_list(iterate(input, run.budget()));
}

Value reverse(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("reverse", std::move(arguments), {});
  std::vector<Value> items = iterate(input, run.budget());
  std::reverse(items.begin(), items.end());
  if (input.if_string() == nullptr) return generator(std::move(items));
  std::string out;
  for (const Value& point : items) out += *point.if_string();
  return out;
}

Value map_filter(Interpreter& run, const Value& input, Arguments arguments) {
  if (!input.truthy()) return generator({});
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const BoundArguments bound("map", std::move(arguments), {"attribute", "default"});
    if (bound.find(0) == nullptr) fail_type("map requires a filter argument");
    for (const Value& item : iterate(input, run.budget())) {
      Value value = attribute_path(run, item, *bound.find(0));
      const bool is_missing = value.is_undefined() && bound.find(1) != nullptr;
      out.push_back(is_missing ? *bound.find(1) : std::move(value));
    }
  } else {
    const std::string name = to_str(take_first(arguments, "map requires a filter argument"));
    for (const Value& item : iterate(input, run.budget()))
      out.push_back(run.filter(name, item, arguments));
  }
  return generator(std::move(out));
}

/// select, reject, selectattr, rejectattr.
Value chosen(Interpreter& run, const Value& input, Arguments arguments, bool by_attribute,
             bool keeps) {
  std::optional<Value> attribute;
  if (by_attribute) attribute = take_first(arguments, "Missing parameter for attribute name");
  if (!input.truthy()) return generator({});
  std::optional<std::string> test;
  if (!arguments.positional.empty()) test = to_str(take_first(arguments, ""));
  std::vector<Value> out;
  for (const Value& item : iterate(input, run.budget())) {
    run.budget().take_steps();
    const Value value = attribute ? attribute_path(run, item, *attribute) : item;
    const bool holds = test ? run.test(*test, value, arguments) : value.truthy();
    if (holds == keeps) out.push_back(item);
  }
  return generator(std::move(out));
}

Value select(Interpreter& run, const Value& input, Arguments arguments) {
  return chosen(run, input, std::move(arguments), false, true);
}
Value reject(Interpreter& run, const Value& input, Arguments arguments) {
  return chosen(run, input, std::move(arguments), false, false);
}
Value selectattr(Interpreter& run, const Value& input, Arguments arguments) {
  return chosen(run, input, std::move(arguments), true, true);
}
Value rejectattr(Interpreter& run, const Value& input, Arguments arguments) {
  return chosen(run, input, std::move(arguments), true, false);
}

/// Order of `keys`, stable in both directions.
std::vector<std::size_t> sorted_order(Interpreter& run, const std::vector<Value>& keys,
                                      bool reversed) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // A merge sort of our own: less() may throw, and need not be a strict order for nan.
  std::vector<std::size_t> merged(order.size());
  for (std::size_t width = 1; width < order.size(); width *= 2) {
    for (std::size_t start = 0; start < order.size(); start += 2 * width) {
      const std::size_t middle = std::min(start + width, order.size());
      const std::size_t end = std::min(start + 2 * width, order.size());
      std::size_t left = start, right = middle;
      for (std::size_t i = start; i < end; ++i) {
        bool takes_right = left >= middle;
        if (left < middle && right < end) {
          takes_right = reversed ? less(keys[order[left]], keys[order[right]], run.budget())
                                 : less(keys[order[right]], keys[order[left]], run.budget());
        }
        merged[i] = takes_right ? order[right++] : order[left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

Value sort(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("sort", std::move(arguments),
                             {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = iterate(input, run.budget());
  const bool case_sensitive = bound.flag(1, false);
  const Value* attribute = bound.find(2);
  std::vector<Value> keys;
  for (const Value& item : items) {
    const std::string* names = attribute == nullptr ? nullptr : attribute->if_string();
    if (names == nullptr || names->find(',') == std::string::npos) {
      keys.push_back(key_of(run, item, attribute, case_sensitive));
      continue;
    }
    std::vector<Value> parts;  // "age,name": by the first, then by the second
    for (const std::string_view name : split(*names, ",", -1)) {
      const Value path(name);
      parts.push_back(key_of(run, item, &path, case_sensitive));
    }
    keys.push_back(make_list(std::move(parts)));
  }
  std::vector<Value> out;
  for (const std::size_t index : sorted_order(run, keys, bound.flag(0, false)))
    out.push_back(items[index]);
  return make_list(std::move(out));
}

Value dictsort(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  const Dict* dict = input.if_dict();
  if (dict == nullptr)
    fail_type(fmt::format("'{}' object has no attribute 'items'", input.type_name()));
  const std::string by = bound.text(1).value_or("key");
  if (by != "key" && by != "value") fail_type("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> keys;
  for (const auto& [key, value] : dict->members)
    keys.push_back(without_case(by == "key" ? key : value, bound.flag(0, false), run.budget()));
  run.budget().take_bytes(keys.size() * kPairBytes);
  std::vector<Value> out;
  for (const std::size_t index : sorted_order(run, keys, bound.flag(2, false))) {
    out.push_back(make_tuple({dict->members[index].first, dict->members[index].second}));
  }
  return make_list(std::move(out));
}

Value unique(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
  std::vector<Value> seen, out;
  for (const Value& item : iterate(input, run.budget())) {
    Value key = key_of(run, item, bound.find(1), bound.flag(0, false));
    if (!is_hashable(key, run.budget()))
      fail_type(fmt::format("unhashable type: '{}'", key.type_name()));
    const auto is_key = [&](const Value& old) { return equal(old, key, run.budget()); };
    if (std::any_of(seen.begin(), seen.end(), is_key)) continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value extreme(Interpreter& run, const Value& input, const BoundArguments& bound,
              bool wants_largest) {
  const std::vector<Value> items = iterate(input, run.budget());
  if (items.empty()) return make_undefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items) {
    Value key = key_of(run, item, bound.find(1), bound.flag(0, false));
    if (best != nullptr &&
        !(wants_largest ? less(best_key, key, run.budget()) : less(key, best_key, run.budget())))
      continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

Value min_filter(Interpreter& run, const Value& input, Arguments arguments) {
  return extreme(run, input,
                 BoundArguments("min", std::move(arguments), {"case_sensitive", "attribute"}),
                 false);
}
Value max_filter(Interpreter& run, const Value& input, Arguments arguments) {
  return extreme(run, input,
                 BoundArguments("max", std::move(arguments), {"case_sensitive", "attribute"}),
                 true);
}

Value sum(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("sum", std::move(arguments), {"attribute", "start"});
  Value total = bound.find(1) == nullptr ? Value(0) : *bound.find(1);
  if (total.if_string() != nullptr) fail_type("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(input, run.budget())) {
    total =
        apply(BinaryOperator::kAdd, total, key_of(run, item, bound.find(0), true), run.budget());
  }
  return total;
}

Value items_filter(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("items", std::move(arguments), {});
  if (input.is_undefined()) return generator({});
  const Dict* dict = input.if_dict();
  if (dict == nullptr) fail_type("Can only get item pairs from a mapping.");
  run.budget().take_bytes(dict->members.size() * kPairBytes);
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict->members) pairs.push_back(make_tuple({key, value}));
  return generator(std::move(pairs));
}

Value batch(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("batch", std::move(arguments), {"linecount", "fill_with"});
  bound.require(0);
  const auto count = static_cast<std::size_t>(std::max<int64_t>(0, bound.index(0, 0)));
  std::vector<Value> rows, row;
  for (Value& item : iterate(input, run.budget())) {
    if (row.size() == count) {
      run.budget().take_bytes(sizeof(Sequence));
      rows.push_back(make_list(std::exchange(row, {})));
    }
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (const Value* fill = bound.find(1);
        fill != nullptr && !fill->is_none() && row.size() < count) {
      run.budget().take_bytes(count * sizeof(Value));
      row.resize(count, *fill);
    }
    rows.push_back(make_list(std::move(row)));
  }
  return generator(std::move(rows));
}

Value attr(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("attr", std::move(arguments), {"name"});
  const Value& name = bound.require(0);
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  // Only attributes: a key of a dictionary is none.
  if (input.if_dict() != nullptr) return missing_attribute(input, to_str(name));
  return run.attribute(input, to_str(name));
}

}  // namespace

FilterFn find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFn> kFilters = {
      {"attr", attr},         {"batch", batch},    {"count", length_filter},
      {"dictsort", dictsort}, {"first", first},    {"items", items_filter},
      {"join", join},         {"last", last},      {"length", length_filter},
      {"list", list_filter},  {"map", map_filter}, {"max", max_filter},
      {"min", min_filter},    {"reject", reject},  {"rejectattr", rejectattr},
      {"reverse", reverse},   {"select", select},  {"selectattr", selectattr},
      {"sort", sort},         {"sum", sum},        {"unique", unique},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace slime::text::jinja
