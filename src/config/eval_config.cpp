#include "config/eval_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/yaml.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/sampling_bounds.h"

namespace slime::config {
namespace {

/// A key of an entry, and the arguments it falls back to, first the one that wins.
struct Field {
  std::string_view key;
  std::vector<std::string_view> arguments;
  bool has_effect = true;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> kFields = {
      {"n_samples_per_eval_prompt", {"n_samples_per_eval_prompt", "n_samples_per_prompt"}},
      {"temperature", {"eval_temperature", "rollout_temperature"}},
      {"top_p", {"eval_top_p", "rollout_top_p"}},
      {"top_k", {"eval_top_k", "rollout_top_k"}},
      {"max_response_len", {"eval_max_response_len", "rollout_max_response_len"}},
      {"stop", {"rollout_stop"}},
      {"stop_token_ids", {"rollout_stop_token_ids"}},
      {"min_new_tokens", {"eval_min_new_tokens"}},
      {"input_key", {"eval_input_key", "input_key"}},
      {"label_key", {"eval_label_key", "label_key"}},
      {"tool_key", {"eval_tool_key", "tool_key"}},
      {"metadata_key", {"metadata_key"}},
      {"multimodal_keys", {"multimodal_keys"}, false},
      {"apply_chat_template", {"apply_chat_template"}},
      {"apply_chat_template_kwargs", {"apply_chat_template_kwargs"}},
      {"custom_rm_path", {"eval_custom_rm_path", "custom_rm_path"}},
      {"min_eval_samples", {}, false},
      {"rm_type", {}},
      {"repetition_penalty", {}},
      {"skip_special_tokens", {}},
      {"no_stop_trim", {}},
      {"custom_generate_function_path", {}},
      {"app_service", {}, false},
      {"eval_task_timeout", {}, false},
      {"eval_early_stop_remaining", {}, false},
      {"eval_early_stop_idle_timeout", {}, false},
      {"message_processor", {}, false},
      {"reward_model", {}, false},
      {"remote_environment", {}, false},
      {"metadata_overrides", {}},
  };
  return kFields;
}

/// null, "", [] and {} say nothing.
bool is_empty(const json::value& value) {
  return value.is_null() || (value.is_string() && value.get_string().empty()) ||
         (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}

void check_keys(const json::object& entry, bool is_entry, const std::string& where,
                std::vector<std::string>& problems) {
  std::vector<std::string_view> known;
  if (is_entry) known = {"name", "path"};
  for (const Field& field : fields()) known.push_back(field.key);
  const std::vector<std::string> unknown =
      FieldReader(entry, where + ": ", problems).unknown_fields(known);
  problems.insert(problems.end(), unknown.begin(), unknown.end());
  if (!unknown.empty())
    problems.push_back(fmt::format("{}: known are {}", where, fmt::join(known, ", ")));
}

json::value resolved(const Field& field, const json::object& entry, const json::object& defaults,
                     const json::object& arguments) {
  for (const json::object* layer : {&entry, &defaults}) {
    if (const json::value* value = layer->if_contains(field.key))
      return *value;  // a present null counts
  }
  for (const std::string_view name : field.arguments) {
    if (const json::value* value = arguments.if_contains(name);
        value != nullptr && !value->is_null())
      return *value;
  }
  return nullptr;
}

/// Entries in order, each with its name; a map's keys are names unless the entry has its own.
std::vector<json::object> named_entries(const json::value& datasets, const std::string& where,
                                        std::vector<std::string>& problems) {
  std::vector<json::object> entries;
  const auto add = [&](const json::value& value, std::string_view name) {
    if (!value.is_object()) {
      problems.push_back(
          fmt::format("{}: data set {} should be a map", where, name.empty() ? "entry" : name));
      return;
    }
    entries.push_back(value.get_object());
    if (!name.empty() && !entries.back().contains("name")) entries.back()["name"] = name;
  };
  if (datasets.is_array()) {
    for (const json::value& value : datasets.get_array()) add(value, "");
  } else if (datasets.is_object()) {
    for (const auto& member : datasets.get_object()) add(member.value(), member.key());
  } else {
    problems.push_back(fmt::format("{}: datasets should be a list or a map", where));
  }
  return entries;
}

EvalSetConfig to_config(const json::object& entry, const std::string& where,
                        std::vector<std::string>& problems) {
  EvalSetConfig set;
  const FieldReader reader(entry, where + ": ", problems);
  const auto text = [&](std::string_view key) { return reader.text(key).value_or(""); };
  set.name = text("name");
  set.path = reader.required().text("path").value_or("");
  if (reader.has("path")) reader.expect(!set.path.empty(), "path", "must be a file");
  set.rm_type = text("rm_type");
  set.custom_rm_path = text("custom_rm_path");
  set.input_key = text("input_key");
  set.label_key = text("label_key");
  set.tool_key = text("tool_key");
  set.metadata_key = text("metadata_key");
  set.apply_chat_template = reader.boolean("apply_chat_template").value_or(false);
  if (const json::object* kwargs = reader.object("apply_chat_template_kwargs"))
    set.apply_chat_template_kwargs = *kwargs;
  set.n_samples = reader.integer("n_samples_per_eval_prompt", 1).value_or(set.n_samples);
  set.temperature = reader.number("temperature", 0, kHighestTemperature).value_or(set.temperature);
  set.top_p = reader.number("top_p").value_or(set.top_p);
  reader.expect(set.top_p > 0 && set.top_p <= 1, "top_p", "must be in (0, 1]");
  set.top_k = reader.integer("top_k").value_or(set.top_k);
  reader.expect(set.top_k == -1 || set.top_k >= 1, "top_k", "must be -1 (all) or at least 1");
  set.max_response_len = reader.integer("max_response_len", 1);
  set.min_new_tokens = reader.integer("min_new_tokens", 0).value_or(set.min_new_tokens);
  set.stop = reader.texts("stop");
  set.stop_token_ids = reader.numbers<int64_t>("stop_token_ids");
  reader.expect(std::ranges::all_of(set.stop_token_ids,
                                    [](int64_t id) { return id >= 0 && id <= kLargestTokenId; }),
                "stop_token_ids", fmt::format("must be ids from 0 to {}", kLargestTokenId));
  set.repetition_penalty = reader.number("repetition_penalty", kLowestRepetitionPenalty, 2)
                               .value_or(set.repetition_penalty);
  set.skip_special_tokens = reader.boolean("skip_special_tokens");
  set.custom_generate_function_path = text("custom_generate_function_path");
  set.no_stop_trim = reader.boolean("no_stop_trim").value_or(set.no_stop_trim);
  if (const json::object* overrides = reader.object("metadata_overrides"))
    set.metadata_overrides = *overrides;
  for (const Field& field : fields()) {
    const json::value* value = entry.if_contains(field.key);
    if (!field.has_effect && value != nullptr && !is_empty(*value))
      set.without_effect.emplace_back(field.key);
  }
  return set;
}

json::object arguments_of(const RunConfig& config) {
  const auto optional = [](const auto& value) {
    return value ? json::value(*value) : json::value();
  };
  const auto word = [](const std::string& value) {
    return value.empty() ? json::value() : json::value(value);
  };
  return {{"n_samples_per_eval_prompt", config.n_samples_per_eval_prompt},
          {"eval_temperature", optional(config.eval_temperature)},
          {"rollout_temperature", config.rollout_temperature},
          {"eval_top_p", optional(config.eval_top_p)},
          {"rollout_top_p", config.rollout_top_p},
          {"eval_top_k", optional(config.eval_top_k)},
          {"rollout_top_k", config.rollout_top_k},
          {"eval_max_response_len", optional(config.eval_max_response_len)},
          {"rollout_max_response_len", optional(config.rollout_max_response_len)},
          {"rollout_stop", json::value_from(config.rollout_stop)},
          {"rollout_stop_token_ids", json::value_from(config.rollout_stop_token_ids)},
          {"eval_min_new_tokens", optional(config.eval_min_new_tokens)},
          {"eval_input_key", word(config.eval_input_key)},
          {"input_key", config.input_key},
          {"eval_label_key", word(config.eval_label_key)},
          {"label_key", word(config.label_key)},
          {"eval_tool_key", word(config.eval_tool_key)},
          {"tool_key", config.tool_key},
          {"metadata_key", config.metadata_key},
          {"apply_chat_template", config.apply_chat_template.get()},
          {"apply_chat_template_kwargs",
           parse_json(config.apply_chat_template_kwargs, "--apply-chat-template-kwargs")}};
}

}  // namespace

std::vector<json::object> resolve_eval_sets(const json::value& datasets,
                                            const json::object& defaults,
                                            const json::object& arguments,
                                            const std::string& where) {
  std::vector<std::string> problems;
  check_keys(defaults, /*is_entry=*/false, where + ": defaults", problems);
  std::vector<json::object> sets;
  std::set<std::string> names;
  for (const json::object& entry : named_entries(datasets, where, problems)) {
    const json::value* name = entry.if_contains("name");
    if (name == nullptr || !name->is_string() || name->get_string().empty()) {
      problems.push_back(fmt::format("{}: the data set {} needs a name", where, json_text(entry)));
      continue;
    }
    const std::string own =
        fmt::format("{}: data set {}", where, std::string_view(name->get_string()));
    if (!names.emplace(name->get_string()).second)
      problems.push_back(own + ": this name is taken by another one");
    // Names of metrics are the data set's with these behind it.
    for (const std::string_view suffix : {"-failed", "-too_long", "-truncated_ratio"}) {
      if (name->get_string().ends_with(suffix))
        problems.push_back(fmt::format("{}: a name must not end in {}", own, suffix));
    }
    check_keys(entry, /*is_entry=*/true, own, problems);
    json::object set{{"name", *name}};
    if (const json::value* path = entry.if_contains("path")) set["path"] = *path;
    for (const Field& field : fields())
      set[field.key] = resolved(field, entry, defaults, arguments);
    const FieldReader own_fields(set, own + ": ", problems);
    const auto least = own_fields.number("min_eval_samples");
    own_fields.expect(!least || *least > 0, "min_eval_samples", "must be positive");
    sets.push_back(std::move(set));
  }
  if (!problems.empty()) throw ConfigError(problems);
  return sets;
}

namespace {

std::string place_of_sets(const RunConfig& config) {
  return config.eval_config.empty() ? "--eval-prompt-data" : "--eval-config " + config.eval_config;
}

}  // namespace

std::vector<json::object> eval_set_records(const RunConfig& config) {
  json::value datasets = json::array();
  json::object defaults;
  const std::string where = place_of_sets(config);
  if (!config.eval_config.empty()) {
    json::value root = read_yaml_file(config.eval_config, "--eval-config");
    if (root.is_object() && root.get_object().contains("eval"))
      root = json::value(root.get_object().at("eval"));
    if (!root.is_object() || !root.get_object().contains("datasets")) {
      throw ConfigError(where + ": should be a map with datasets (and defaults)");
    }
    datasets = root.get_object().at("datasets");
    if (const json::value* given = root.get_object().if_contains("defaults");
        given != nullptr && !given->is_null()) {
      if (!given->is_object()) throw ConfigError(where + ": defaults should be a map");
      defaults = given->get_object();
    }
  } else {
    for (std::size_t i = 0; i + 1 < config.eval_prompt_data.size(); i += 2) {
      datasets.get_array().push_back(json::object{{"name", config.eval_prompt_data[i]},
                                                  {"path", config.eval_prompt_data[i + 1]}});
    }
  }
  std::vector<json::object> sets =
      resolve_eval_sets(datasets, defaults, arguments_of(config), where);
  for (json::object& set : sets) {
    const json::value* path = set.if_contains("path");
    if (path == nullptr || !path->is_string()) continue;
    const auto found = config.found_paths.find(std::string(path->get_string()));
    if (found != config.found_paths.end()) set["path"] = found->second;
  }
  return sets;
}

std::vector<EvalSetConfig> eval_sets_of(const RunConfig& config) {
  const std::string where = place_of_sets(config);
  std::vector<EvalSetConfig> sets;
  std::vector<std::string> problems;
  for (const json::object& entry : eval_set_records(config)) {
    const std::string own =
        fmt::format("{}: data set {}", where, std::string_view(entry.at("name").get_string()));
    sets.push_back(to_config(entry, own, problems));
  }
  if (sets.empty()) problems.push_back(where + ": there is no data set");
  if (!problems.empty()) throw ConfigError(problems);
  return sets;
}

json::object eval_metadata(const json::value& sample_metadata, const std::string& rm_type,
                           const json::object& overrides) {
  json::object metadata =
      sample_metadata.is_object() ? sample_metadata.get_object() : json::object();
  if (!rm_type.empty()) metadata["rm_type"] = rm_type;
  for (const auto& member : overrides) metadata[member.key()] = member.value();
  return metadata;
}

}  // namespace slime::config
