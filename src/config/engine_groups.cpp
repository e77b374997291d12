#include "config/engine_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include "config/flag_table.h"
#include "config/set_flag.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/field_reader.h"

namespace slime::config {
namespace {

constexpr int64_t kMostGpus = 1 << 16;

/// Flags that engines of one run may differ in.
constexpr std::array<std::string_view, 7> kOfOneEngine{"--sglang-max-running-requests",
                                                       "--sglang-chunked-prefill-size",
                                                       "--sglang-disable-radix-cache",
                                                       "--sglang-mem-fraction-static",
                                                       "--sglang-context-length",
                                                       "--sglang-kv-cache-dtype",
                                                       "--kv-cache-gb"};

/// What the file says of its groups, one behind the other.
struct Groups {
  std::vector<EngineGroup> groups;
  int64_t num_gpus = 0;
  int64_t gpus_per_engine = 0;
};

std::string why_not(std::string_view worker_type) {
  if (worker_type == "prefill" || worker_type == "decode") {
    return "pairs of prefill and decode are not there: every engine computes prompts and "
           "responses; make it regular, or leave --sglang-config out";
  }
  if (worker_type == "encoder") return "engines serve text models, without an encoder of images";
  return "devices go to ranks that train and to engines, in this order; leave the group out";
}

/// "max_running_requests: 64" as a flag and its word; switches that are off say nothing.
void read_override(const json::key_value_pair& member, const std::string& where, EngineGroup& group,
                   ParsedFlags& flags, std::vector<std::string>& wrong) {
  std::string key(member.key());
  const json::value& value = member.value();
  if (value.is_null()) return;
  const std::string word = value.is_string() ? std::string(value.get_string()) : json_text(value);
  if (key == "model_path") {
    const auto normal = [](const std::string& path) {
      return (std::filesystem::path(path) / "").lexically_normal();
    };
    if (normal(word) != normal(flags.config.hf_checkpoint.peek()))
      wrong.push_back(
          fmt::format("{}: model_path {}: the engines have the model that is trained; "
                      "start another one with slime serve",
                      where, word));
    return;
  }
  std::ranges::replace(key, '_', '-');
  const FlagRow* row = find_flag("--sglang-" + key);
  if (row == nullptr && key == "kv-cache-gb") row = find_flag("--kv-cache-gb");
  if (row == nullptr || row->status == FlagStatus::kAccepted) {
    flags.warnings.push_back(fmt::format(
        "{}: {} has no effect: {}", where, std::string_view(member.key()),
        row == nullptr ? "this engine has no such setting" : reason_of(*row, flags.config)));
    return;
  }
  if (std::ranges::find(kOfOneEngine, row->name) == kOfOneEngine.end()) {
    wrong.push_back(fmt::format("{}: {}: is no setting of one engine; give {} to the run", where,
                                std::string_view(member.key()), row->name));
    return;
  }
  RunConfig scratch;
  Setting setting{.name = std::string(row->name), .values = {word}, .where = where};
  if (const auto problem = set_flag(*row, setting, false, scratch)) {
    wrong.push_back(fmt::format("{}: {}", where, *problem));
    return;
  }
  group.flags[std::string(row->name)] = word;
}

/// Of the one model whose engines the run has.
void read_groups(const FieldReader& model, const std::string& where, ParsedFlags& flags,
                 Groups& found, std::vector<std::string>& wrong) {
  const RunConfig& config = flags.config;
  const int64_t of_model = model.integer("num_gpus_per_engine", 1, kMostGpus)
                               .value_or(config.rollout_num_gpus_per_engine.peek());
  const std::string_view list = model.has("server_groups") ? "server_groups" : "engine_groups";
  const std::vector<FieldReader> entries = model.list(list);
  if (entries.empty()) wrong.push_back(fmt::format("{}: server_groups: is empty", where));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const FieldReader& entry = entries[i];
    const std::string place = fmt::format("{}: {}[{}]", where, list, i);
    entry.refuse_unknown(std::array<std::string_view, 4>{"worker_type", "num_gpus",
                                                         "num_gpus_per_engine", "overrides"});
    const std::string type =
        entry.required()
            .one_of("worker_type", std::array<std::string_view, 5>{"regular", "prefill", "decode",
                                                                   "placeholder", "encoder"})
            .value_or("regular");
    if (type != "regular") {
      wrong.push_back(fmt::format("{}: worker_type {}: {}", place, type, why_not(type)));
      continue;
    }
    const int64_t num_gpus = entry.required().integer("num_gpus", 1, kMostGpus).value_or(1);
    const int64_t per_engine =
        entry.integer("num_gpus_per_engine", 1, kMostGpus).value_or(of_model);
    if (found.gpus_per_engine != 0 && found.gpus_per_engine != per_engine)
      wrong.push_back(
          fmt::format("{}: num_gpus_per_engine {}: the engines of a run are of one "
                      "size, {} in the groups before",
                      place, per_engine, found.gpus_per_engine));
    found.gpus_per_engine = per_engine;
    if (num_gpus % per_engine != 0)
      wrong.push_back(fmt::format("{}: num_gpus {}: is no multiple of num_gpus_per_engine {}",
                                  place, num_gpus, per_engine));
    EngineGroup group{.num_engines = std::max<int64_t>(1, num_gpus / per_engine), .flags = {}};
    if (const json::object* overrides = entry.object("overrides"))
      for (const auto& member : *overrides) read_override(member, place, group, flags, wrong);
    found.num_gpus += num_gpus;
    found.groups.push_back(std::move(group));
  }
}

Groups read(const std::string& where, ParsedFlags& flags, std::vector<std::string>& wrong) {
  const RunConfig& config = flags.config;
  const json::value root = read_yaml_file(config.sglang_config.peek(), "--sglang-config");
  if (!root.is_object()) throw ConfigError(where + ": should be a map with a list `sglang`");
  Groups found;
  const FieldReader file(root.get_object(), where + ": ", wrong);
  const std::vector<FieldReader> models = file.required().list("sglang");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const FieldReader& model = models[i];
    const std::string name = model.text("name").value_or(fmt::format("model {}", i));
    const std::string path = model.text("model_path").value_or(config.hf_checkpoint.peek());
    const bool is_trained =
        model.boolean("update_weights").value_or(path == config.hf_checkpoint.peek());
    if (!is_trained || i > 0) {
      wrong.push_back(fmt::format(
          "{}: {}: a second model, or one without updates: the engines of a run have the model "
          "that is trained; start it with slime serve --model {}, and ask it from a function of "
          "yours or with --rm-url",
          where, name, path));
      continue;
    }
    model.refuse_unknown(std::array<std::string_view, 6>{"name", "model_path", "update_weights",
                                                         "num_gpus_per_engine", "server_groups",
                                                         "engine_groups"});
    read_groups(model, fmt::format("{}: {}", where, name), flags, found, wrong);
  }
  return found;
}

}  // namespace

void apply_engine_groups(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const std::string& path = config.sglang_config;
  if (path.empty() || !config.generates()) return;
  const std::string where = "--sglang-config " + path;
  problems.require(!config.has_external_engines(),
                   "--sglang-config and --rollout-external-engine-addrs: choose one");
  problems.require(!flags.gives("--prefill-num-servers"),
                   "--sglang-config and --prefill-num-servers: choose one");
  if (!std::filesystem::exists(path))
    return problems.require_path(
        false, fmt::format("{}: no such file; the engines that it names were not checked", where));
  std::vector<std::string> wrong;
  Groups found;
  try {
    found = read(where, flags, wrong);
  } catch (const ConfigError& error) {
    wrong.emplace_back(error.what());
  }
  for (const std::string& each : wrong) problems.require(false, each);
  if (!wrong.empty() || found.groups.empty()) return;
  if (config.colocate) {
    problems.require(found.num_gpus == config.world_size(),
                     fmt::format("{}: {} GPUs; with --colocate the engines are on the {} of the "
                                 "ranks that train",
                                 where, found.num_gpus, config.world_size()));
  } else {
    problems.require(!config.rollout_num_gpus || *config.rollout_num_gpus == found.num_gpus,
                     fmt::format("{}: {} GPUs; --rollout-num-gpus says {}", where, found.num_gpus,
                                 config.rollout_num_gpus.value_or(0)));
    config.rollout_num_gpus.stems_from(config.sglang_config);
    config.rollout_num_gpus = found.num_gpus;
  }
  config.rollout_num_gpus_per_engine.stems_from(config.sglang_config);
  config.rollout_num_gpus_per_engine = found.gpus_per_engine;
  const bool are_alike = std::ranges::all_of(found.groups, [&](const EngineGroup& group) {
    return group.flags == found.groups.front().flags;
  });
  if (!are_alike) {
    problems.require(!config.colocate,
                     where +
                         ": groups that differ: with --colocate all engines have the same "
                         "settings; use --rollout-num-gpus without --colocate");
    config.engine_groups = std::move(found.groups);
    return;
  }
  for (const auto& [name, word] : found.groups.front().flags) {
    const Setting setting{.name = name, .values = {word}, .where = where};
    set_flag(*find_flag(name), setting, false, config);
  }
}

RunConfig config_of_engine(const RunConfig& config, int64_t index) {
  RunConfig own = config;
  for (const EngineGroup& group : config.engine_groups) {
    if (index < group.num_engines) {
      for (const auto& [name, word] : group.flags)
        set_flag(*find_flag(name), {.name = name, .values = {word}, .where = "--sglang-config"},
                 false, own);
      return own;
    }
    index -= group.num_engines;
  }
  return own;
}

}  // namespace slime::config
