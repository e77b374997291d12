#include "config/resolved.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "config/flag_table.h"
#include "config/parse_flags.h"
#include "core/error.h"

namespace slime::config {
namespace {

constexpr std::string_view kWhere = "the configuration of the run";

/// Numbers that need not be whole travel as text: the parser of JSON may lose their last bit.
json::value to_exact(const json::value& value) {
  return value.is_double() ? json::value(fmt::format("{}", value.get_double())) : value;
}

double double_from(const FlagRow& flag, const json::value& value) {
  const std::string_view text(value.as_string());
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end)
    throw ConfigError(fmt::format("{}: {} {} is no number", kWhere, flag.name, text));
  return number;
}

void set(RunConfig& config, const FlagRow& flag, const json::value& value) {
  std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          throw ConfigError(fmt::format("{}: {} has no value here", kWhere, flag.name));
        } else {
          using Value = typename std::remove_reference_t<decltype(config.*member)>::Value;
          if constexpr (std::is_same_v<Value, double> ||
                        std::is_same_v<Value, std::optional<double>>) {
            config.*member = double_from(flag, value);
          } else if constexpr (std::is_same_v<Value, std::optional<int64_t>>) {
            (config.*member).change() = value.as_int64();
          } else {
            config.*member = json::value_to<Value>(value);
          }
        }
      },
      flag.member);
}

}  // namespace

json::object to_json(const RunConfig& config) {
  json::object flags;
  for (const auto& flag : changed_flags(config)) flags[flag.key()] = to_exact(flag.value());
  return {{"flags", std::move(flags)},
          {"num_engine_workers", config.num_engine_workers.peek()},
          {"imitates_samples", config.imitates_samples},
          {"keeps_engine_weights", config.keeps_engine_weights},
          {"aliases", json::value_from(config.given_aliases)},
          {"critic", config.critic ? json::value(to_json(*config.critic)) : json::value()}};
}

RunConfig run_config_from(const json::object& object) {
  try {
    RunConfig config;
    for (const auto& member : object.at("flags").as_object()) {
      const std::string name(member.key());
      const FlagRow* flag = find_flag(name);
      if (flag == nullptr) throw ConfigError(fmt::format("{}: {}: no such flag", kWhere, name));
      set(config, *flag, member.value());
    }
    config.num_engine_workers = object.at("num_engine_workers").as_int64();
    config.imitates_samples = object.at("imitates_samples").as_bool();
    config.keeps_engine_weights = object.at("keeps_engine_weights").as_bool();
    config.given_aliases = json::value_to<std::map<std::string, std::string>>(object.at("aliases"));
    const json::value& critic = object.at("critic");
    if (!critic.is_null())
      config.critic = std::make_shared<const RunConfig>(run_config_from(critic.as_object()));
    return config;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {  // of Boost.JSON: a type, a missing member
    throw ConfigError(fmt::format("{}: {}", kWhere, error.what()));
  }
}

}  // namespace slime::config
