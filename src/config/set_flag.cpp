#include "config/set_flag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "config/overloaded.h"
#include "config/secrets.h"
#include "core/nearest_name.h"
#include "core/secret_urls.h"

namespace slime::config {
namespace {

template <typename T>
json::value to_value(const T& value) {
  return json::value_from(value);
}

template <typename T>
json::value to_value(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value();
}

template <typename T>
bool read_number(const std::string& word, T& number) {
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stop == end && std::isfinite(static_cast<double>(number));
}

/// What a word that is a number lacks: it is not finite, or none of our numbers can hold it.
template <typename T>
std::string range_note(const std::string& word) {
  double number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (stop != end) return "";
  if constexpr (std::is_integral_v<T>) {
    const bool is_whole = word.find_first_not_of("0123456789-") == std::string::npos;
    return is_whole ? fmt::format(" from {} to {}", std::numeric_limits<T>::min(),
                                  std::numeric_limits<T>::max())
                    : "";
  }
  if (error == std::errc::result_out_of_range) return " that a 64-bit floating-point number holds";
  return std::isfinite(number) ? "" : ", and a finite one";
}

}  // namespace

std::optional<std::string> set_flag(const FlagRow& flag, const Setting& setting, bool adds,
                                    RunConfig& config) {
  const auto& values = setting.values;
  const auto one_value = [&](std::string_view kind) -> std::optional<std::string> {
    if (values.size() == 1) return std::nullopt;
    if (values.empty()) return fmt::format("{} needs {}", flag.name, kind);
    return fmt::format("{} takes one value, got {}", flag.name,
                       is_secret_flag(flag.name) ? std::string(kMasked)
                                                 : fmt::format("{}", fmt::join(values, " ")));
  };
  const auto number = [&]<typename T>(T& target,
                                      std::string_view kind) -> std::optional<std::string> {
    if (auto wrong = one_value(kind)) return wrong;
    if (read_number(values[0], target)) return std::nullopt;
    return fmt::format("{} {}: should be {}{}", flag.name, values[0], kind,
                       range_note<T>(values[0]));
  };
  if (!flag.choices.empty()) {
    if (auto wrong = one_value("a word")) return wrong;
    if (std::ranges::find(flag.choices, values[0]) == flag.choices.end()) {
      return fmt::format("{} {}: should be one of {}{}", flag.name, values[0],
                         fmt::join(flag.choices, ", "), did_you_mean(values[0], flag.choices));
    }
  }
  return std::visit(
      Overloaded{
          [](std::monostate) -> std::optional<std::string> { return std::nullopt; },
          [&](Flag<bool> RunConfig::*member) -> std::optional<std::string> {
            if (!setting.where.empty() && values.size() == 1 &&
                (values[0] == "true" || values[0] == "false")) {
              config.*member = values[0] == "true";
              return std::nullopt;
            }
            if (!values.empty()) {
              return fmt::format("{} is a switch and takes no value (got {})", flag.name,
                                 fmt::join(values, " "));
            }
            config.*member = true;
            return std::nullopt;
          },
          [&](Flag<int64_t> RunConfig::*member) {
            return number((config.*member).change(), "a whole number");
          },
          [&](Flag<double> RunConfig::*member) {
            return number((config.*member).change(), "a number");
          },
          [&](Flag<std::optional<int64_t>> RunConfig::*member) {
            return number((config.*member).change().emplace(), "a whole number");
          },
          [&](Flag<std::optional<double>> RunConfig::*member) {
            return number((config.*member).change().emplace(), "a number");
          },
          [&](Flag<std::string> RunConfig::*member) -> std::optional<std::string> {
            if (auto wrong = one_value("a value")) return wrong;
            config.*member = values[0];
            return std::nullopt;
          },
          [&](Flag<std::vector<std::string>> RunConfig::*member) -> std::optional<std::string> {
            if (values.empty()) return fmt::format("{} needs at least one value", flag.name);
            auto& target = (config.*member).change();
            if (!adds) target.clear();
            target.insert(target.end(), values.begin(), values.end());
            return std::nullopt;
          },
          [&](Flag<std::vector<int64_t>> RunConfig::*member) -> std::optional<std::string> {
            if (values.empty()) return fmt::format("{} needs at least one value", flag.name);
            auto& target = (config.*member).change();
            target.clear();
            for (const std::string& value : values) {
              if (!read_number(value, target.emplace_back())) {
                return fmt::format("{} {}: should be whole numbers", flag.name, value);
              }
            }
            return std::nullopt;
          }},
      flag.member);
}

json::value value_of(const FlagRow& flag, const RunConfig& config) {
  return std::visit(
      [&](auto member) -> json::value {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return nullptr;
        } else {
          return to_value((config.*member).peek());
        }
      },
      flag.member);
}

namespace {

/// Not "007", which is a name, nor "nan".
bool is_written_as_number(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  const bool has_leading_zero =
      word.size() > 1 && word[0] == '0' && word[1] >= '0' && word[1] <= '9';
  return !has_leading_zero && word.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
}

}  // namespace

json::value value_of_words(const std::vector<std::string>& words) {
  const auto one = [](const std::string& word) -> json::value {
    if (!is_written_as_number(word)) return json::value(word);
    if (int64_t number = 0; read_number(word, number)) return number;
    if (double number = 0; read_number(word, number)) return number;
    return json::value(word);
  };
  if (words.empty()) return true;
  if (words.size() == 1) return one(words[0]);
  json::array list;
  for (const std::string& word : words) list.push_back(one(word));
  return list;
}

}  // namespace slime::config
