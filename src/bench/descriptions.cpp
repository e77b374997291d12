#include "bench/descriptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace slime::bench {
namespace {

constexpr std::string_view kSize = "SIZE";
constexpr const char* kMeasurement = "measurement";

/// What stands for SIZE when `name` fits `pattern`; "" where the pattern is the name.
std::optional<std::string> size_of(std::string_view pattern, std::string_view name) {
  const std::size_t at = pattern.find(kSize);
  if (at == std::string_view::npos)
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kSize.size());
  const bool fits = name.size() > before.size() + after.size() && name.starts_with(before) &&
                    name.ends_with(after);
  if (!fits) return std::nullopt;
  return std::string(name.substr(before.size(), name.size() - before.size() - after.size()));
}

std::string text_of(const json::value& value, const std::string& size) {
  return value.is_string() ? with_size(std::string(value.get_string()), size) : json_text(value);
}

/// "" for true.
std::string flag_value(const json::value& value, const std::string& size) {
  if (value.is_bool()) return "";
  if (!value.is_array()) return text_of(value, size);
  std::string all;
  for (const json::value& each : value.get_array())
    all += (all.empty() ? "" : ",") + text_of(each, size);
  return all;
}

bool is_flag_value(const json::value& value) {
  return value.is_string() || value.is_number() || (value.is_bool() && value.get_bool()) ||
         (value.is_array() && !value.get_array().empty() &&
          std::ranges::all_of(value.get_array(),
                              [](const auto& one) { return one.is_string() || one.is_number(); }));
}

void check_description(const std::string& where, const json::value& value) {
  if (!value.is_object() || !value.get_object().contains(kMeasurement) ||
      !value.get_object().at(kMeasurement).is_string())
    throw ConfigError(where + ": should be an object with the text \"measurement\"");
  for (const auto& flag : value.get_object()) {
    if (!is_flag_value(flag.value()))
      throw ConfigError(fmt::format(
          "{}: {} should be a text, a number, true or a list of texts or numbers, not {}", where,
          std::string(flag.key()), json_text(flag.value())));
  }
}

bool is_typed(const std::string& flag, Arguments typed) {
  return std::ranges::any_of(
      typed, [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

}  // namespace

std::string with_size(std::string text, const std::string& size) {
  if (const std::size_t at = text.find(kSize); at != std::string::npos)
    text.replace(at, kSize.size(), size);
  return text;
}

Descriptions read_descriptions(const std::string& path) {
  json::value value = read_json_file(path, std::size_t{1} << 20);
  if (!value.is_object()) throw ConfigError(path + ": should hold a JSON object");
  for (const auto& entry : value.get_object())
    check_description(fmt::format("{}: \"{}\"", path, std::string(entry.key())), entry.value());
  return std::move(value.get_object());
}

std::optional<Described> find_description(const Descriptions& descriptions, const std::string& name,
                                          Arguments typed) {
  const json::object* best = nullptr;
  std::string size;
  std::size_t length = 0;
  for (const auto& entry : descriptions) {
    const std::optional<std::string> found = size_of(entry.key(), name);
    if (!found || (best != nullptr && !found->empty() && entry.key().size() <= length)) continue;
    best = &entry.value().get_object();
    size = *found;
    if (size.empty()) break;
    length = entry.key().size();
  }
  if (best == nullptr) return std::nullopt;
  Described described{.measurement = std::string(best->at(kMeasurement).get_string()), .flags = {}};
  for (const auto& entry : *best) {
    const std::string flag = "--" + std::string(entry.key());
    if (entry.key() == kMeasurement || is_typed(flag, typed)) continue;
    described.flags.push_back(flag);
    if (std::string text = flag_value(entry.value(), size); !text.empty())
      described.flags.push_back(std::move(text));
  }
  return described;
}

}  // namespace slime::bench
