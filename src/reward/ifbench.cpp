#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "reward/ifbench_checks.h"
#include "reward/label.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

/// Ids as trimmed strings; nulls and empty ones are dropped (spec 16.7).
std::vector<std::string> instruction_ids(const json::object& metadata) {
  std::vector<std::string> ids;
  const json::value* list = metadata.if_contains("instruction_id_list");
  if (list == nullptr || !list->is_array()) return ids;
  for (const json::value& value : list->get_array()) {
    if (value.is_null()) continue;
    const std::string text = value.is_string() ? std::string(value.get_string()) : json_text(value);
    if (const std::string_view trimmed = stripped(text); !trimmed.empty())
      ids.emplace_back(trimmed);
  }
  return ids;
}

json::object without_nulls(const json::value& value) {
  json::object map;
  if (!value.is_object()) return map;
  for (const auto& member : value.get_object()) {
    if (!member.value().is_null()) map[member.key()] = member.value();
  }
  return map;
}

/// One map per instruction: a list as it stands, its last entry repeated; a single map for all.
std::vector<json::object> arguments_of(const json::object& metadata, std::size_t count) {
  std::vector<json::object> maps;
  const json::value* given = metadata.if_contains("kwargs");
  if (given != nullptr && given->is_array()) {
    for (const json::value& value : given->get_array()) maps.push_back(without_nulls(value));
  } else if (given != nullptr && given->is_object()) {
    maps.push_back(without_nulls(*given));
  }
  if (maps.empty()) maps.emplace_back();
  while (maps.size() < count) maps.push_back(json::object(maps.back()));
  maps.resize(count);
  return maps;
}

/// An instruction with its parameters.
struct Demand {
  std::string id;
  InstructionCheck check;
  json::object arguments;
};

std::string missing_list(const json::object& metadata) {
  const json::value* list = metadata.if_contains("instruction_id_list");
  if (list == nullptr || list->is_null()) return "ifbench: metadata has no instruction_id_list";
  if (!list->is_array()) {
    return "ifbench: instruction_id_list should be a list of names, it is " + shown_label(*list);
  }
  return "ifbench: instruction_id_list is empty";
}

Expected<bool> follows(std::string_view response, const Demand& demand) {
  try {
    return demand.check(response, demand.arguments);
  } catch (const ConfigError& error) {
    return failure(fmt::format("ifbench: {}: {}", demand.id, error.what()));
  }
}

/// All that the row asks for. An Error when it cannot be checked, whatever the response: no list,
/// an instruction that nobody knows, a parameter that is missing.
Expected<std::vector<Demand>> demands_of(const json::object& metadata) {
  constexpr std::string_view kProbe = "The first one. And a second, with 2 words?";
  const std::vector<std::string> ids = instruction_ids(metadata);
  if (ids.empty()) return failure(missing_list(metadata));
  std::vector<json::object> arguments = arguments_of(metadata, ids.size());
  std::vector<Demand> demands;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const InstructionCheck check = find_instruction(ids[i]);
    if (check == nullptr) {
      const std::string_view missing = missing_resource(ids[i]);
      return failure(missing.empty()
                         ? fmt::format("ifbench: unknown instruction {}", ids[i])
                         : fmt::format("ifbench: {} needs {}, which is not part of this program",
                                       ids[i], missing));
    }
    demands.push_back({ids[i], check, std::move(arguments[i])});
    // A check reads its parameters while it looks at a response.
    if (const auto probed = follows(kProbe, demands.back()); !probed)
      return tl::make_unexpected(probed.error());
  }
  return demands;
}

}  // namespace

std::optional<std::string> ifbench_label_problem(const json::object& metadata, Grading grading) {
  if (grading == Grading::kOriginal && instruction_ids(metadata).empty()) return std::nullopt;
  const auto demands = demands_of(metadata);
  if (demands) return std::nullopt;
  return demands.error().message;
}

Expected<json::value> score_ifbench(std::string_view response, const json::object& metadata,
                                    Grading grading) {
  if (grading == Grading::kOriginal && instruction_ids(metadata).empty()) return json::value(0.0);
  const auto demands = demands_of(metadata);
  if (!demands) return tl::make_unexpected(demands.error());
  bool follows_all = !stripped(response).empty();
  for (const Demand& demand : *demands) {
    if (!follows_all) break;
    const Expected<bool> followed = follows(response, demand);
    if (!followed) return tl::make_unexpected(followed.error());
    follows_all = *followed;
  }
  return json::value(follows_all ? 1.0 : 0.0);
}

}  // namespace slime::reward
