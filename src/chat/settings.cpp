#include "chat/settings.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/nearest_name.h"

namespace slime::chat {
namespace {

enum class Kind { kNumber, kCount, kText, kSwitch };

struct Row {
  std::string_view name;
  Kind kind;
  double low, high;
  std::string_view what;
};

constexpr double kMost = 1e9;
constexpr std::array<Row, 12> kRows{{
    {"temperature", Kind::kNumber, 0, 2, "0: always the likeliest token; 2: almost any"},
    {"top_p", Kind::kNumber, 0, 1, "draw from the likeliest tokens with this share together"},
    {"top_k", Kind::kCount, -1, kMost, "draw from so many likeliest tokens; -1: from all"},
    {"min_p", Kind::kNumber, 0, 1, "leave out tokens below this share of the likeliest one"},
    {"max_tokens", Kind::kCount, 1, kMost, "longest answer, thoughts included"},
    {"seed", Kind::kCount, 0, kMost, "the same answer to the same question"},
    {"repetition_penalty", Kind::kNumber, 0, 2, "above 1: tokens that were there are less likely"},
    {"presence_penalty", Kind::kNumber, -2, 2, "the same, OpenAI's form"},
    {"frequency_penalty", Kind::kNumber, -2, 2, "the same, by how often they were there"},
    {"stop", Kind::kText, 0, 0, "a text that ends the answer"},
    {"thinking", Kind::kSwitch, 0, 0, "on or off, where the model's template has the switch"},
    {"reasoning_effort", Kind::kText, 0, 0, "low, medium, high: where the template reads it"},
}};

const Row& row_of(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row;
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  const auto nearest = nearest_name(name, names);
  throw ConfigError(fmt::format(
      "there is no setting \"{}\"{}", name,
      nearest ? fmt::format("; did you mean {}?", *nearest) : "; /set alone lists them"));
}

std::optional<double> number_of(std::string_view word) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

json::value value_of(const Row& row, std::string_view word) {
  if (row.kind == Kind::kText) return json::value(word);
  if (row.kind == Kind::kSwitch) {
    if (word != "on" && word != "off")
      throw ConfigError(fmt::format("{} is on or off, not \"{}\"", row.name, word));
    return word == "on";
  }
  const auto number = number_of(word);
  const bool is_whole = number && std::floor(*number) == *number;
  if (!number || *number < row.low || *number > row.high ||
      (row.kind == Kind::kCount && !is_whole)) {
    throw ConfigError(fmt::format("{}: should be a {}number from {} to {}, not \"{}\"", row.name,
                                  row.kind == Kind::kCount ? "whole " : "", row.low, row.high,
                                  word));
  }
  if (row.kind == Kind::kCount) return static_cast<int64_t>(*number);
  return *number;
}

}  // namespace

void Settings::set(std::string_view name, std::string_view value) {
  const Row& row = row_of(name);
  const bool is_template = row.kind == Kind::kSwitch;
  if (value == "default") {
    members_.erase(is_template ? std::string_view("chat_template_kwargs") : name);
    return;
  }
  json::value given = value_of(row, value);
  if (is_template) {  // both names that templates read
    members_["chat_template_kwargs"] = {{"enable_thinking", given}, {"thinking", given}};
  } else {
    members_[name] = std::move(given);
  }
}

std::string Settings::text() const {
  std::string text;
  for (const auto& member : members_) {
    const bool is_template = member.key() == "chat_template_kwargs";
    const std::string name = is_template ? "thinking" : std::string(member.key());
    std::string value;
    if (is_template)
      value = member.value().at("thinking").as_bool() ? "on" : "off";
    else if (member.value().is_double())
      value = fmt::format("{:g}", member.value().get_double());
    else
      value = json_text(member.value());
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

std::string Settings::names() {
  std::string text;
  for (const Row& row : kRows) text += fmt::format("  {:<20}{}\n", row.name, row.what);
  return text;
}

}  // namespace slime::chat
