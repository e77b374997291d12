#include "loop/changed_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

#include "config/flag_table.h"
#include "config/parse_flags.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "train/run_parts.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

/// What a flag means for a run that goes on; the others are told, and no more.
enum class Meaning {
  kPlace,       // where things lie, what is shown: not told
  kExperiment,  // another one makes another experiment
  kFrozen,      // which weights Adam has moments of
};

struct Row {
  std::string_view flag;
  Meaning meaning;
};

constexpr std::array kMeanings{
    Row{"--run-dir", Meaning::kPlace},
    Row{"--save", Meaning::kPlace},
    Row{"--load", Meaning::kPlace},
    Row{"--overwrite", Meaning::kPlace},
    Row{"--dry-run", Meaning::kPlace},
    Row{"--finetune", Meaning::kPlace},
    Row{"--no-load-optim", Meaning::kPlace},
    Row{"--start-rollout-id", Meaning::kPlace},
    Row{"--ckpt-step", Meaning::kPlace},
    Row{"--rollout-data-dir", Meaning::kPlace},
    Row{"--allow-other-experiment", Meaning::kPlace},
    Row{"--allow-unknown-flags", Meaning::kPlace},
    Row{"--save-debug-rollout-data", Meaning::kPlace},
    Row{"--dump-details", Meaning::kPlace},
    Row{"--rm-type", Meaning::kExperiment},
    Row{"--custom-rm-path", Meaning::kExperiment},
    Row{"--group-rm", Meaning::kExperiment},
    Row{"--reward-key", Meaning::kExperiment},
    Row{"--custom-reward-post-process-path", Meaning::kExperiment},
    Row{"--loss-type", Meaning::kExperiment},
    Row{"--freeze-params-name-list", Meaning::kFrozen},
    Row{"--only-train-params-name-list", Meaning::kFrozen},
    Row{"--freeze-indexer", Meaning::kFrozen},
};

bool has_meaning(std::string_view flag, Meaning meaning) {
  const auto row = std::ranges::find(kMeanings, flag, &Row::flag);
  return row != kMeanings.end() && row->meaning == meaning;
}

/// Effects that surprise people.
struct Effect {
  std::string_view flag, effect;
};
constexpr std::array kEffects{
    Effect{"--num-rollout", "learning rates that decay follow the new length from here on"},
    Effect{"--num-epoch", "learning rates that decay follow the new length from here on"},
    Effect{"--hf-checkpoint",
           "tokenizer, template and files beside the weights; the weights are the checkpoint's"},
    Effect{"--dtype", "master weights are read as far as this precision has them"},
    Effect{"--freeze-params-name-list", "Adam begins anew"},
    Effect{"--only-train-params-name-list", "Adam begins anew"},
    Effect{"--freeze-indexer", "Adam begins anew"},
};

std::string text_of(const json::value& value) {
  if (value.is_string() && !value.get_string().empty()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "given" : "not given";
  if (const json::array* list = value.if_array(); list != nullptr && !list->empty()) {
    std::vector<std::string> words;
    for (const json::value& word : *list) words.push_back(text_of(word));
    return fmt::format("{}", fmt::join(words, " "));
  }
  if (value.is_number() || value.is_object()) return json_text(value);
  return "not given";
}

/// A flag that a command did not give has its default.
std::string text_of(std::string_view flag, const json::value* value) {
  if (value != nullptr) return text_of(*value);
  const config::FlagRow* row = config::find_flag(flag);
  const std::string text = row != nullptr ? config::default_text(*row) : "";
  return text.empty() ? "not given" : text + " (default)";
}

const json::object* member(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found != nullptr ? found->if_object() : nullptr;
}

std::string text_member(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
}

uint32_t sum_of_ends(const fs::path& path, uint32_t sum) {
  constexpr std::streamoff kEnd = 1 << 16;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  std::string block(static_cast<std::size_t>(std::min<std::streamoff>(size, kEnd)), '\0');
  for (const std::streamoff begin : {std::streamoff{0}, std::max<std::streamoff>(size - kEnd, 0)}) {
    in.seekg(begin);
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    sum = crc32c({block.data(), static_cast<std::size_t>(in.gcount())}, sum);
  }
  return sum;
}

}  // namespace

std::string model_digest(const std::string& directory) {
  std::error_code error;
  std::set<fs::path> files;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    const bool counts = name == "config.json" || name.starts_with("tokenizer.") ||
                        path.extension() == ".safetensors";
    if (counts && entry->is_regular_file(error)) files.insert(path);
  }
  if (error || files.empty()) return "";
  uint32_t sum = 0;
  for (const fs::path& path : files) {
    const auto size = fs::file_size(path, error);
    sum = crc32c(fmt::format("{} {}\n", path.filename().string(), size), sum);
    sum = sum_of_ends(path, sum);
  }
  return fmt::format("{:08x}", sum);
}

json::object settings_of(const config::RunConfig& config) {
  return {{"flags", config::changed_flags(config)},
          {"model_digest", model_digest(config.hf_checkpoint)}};
}

std::vector<ChangedSetting> changed_settings(const json::object& before, const json::object& now) {
  const json::object* flags_before = member(before, "flags");
  const json::object* flags_now = member(now, "flags");
  if (flags_before == nullptr || flags_now == nullptr) return {};
  std::set<std::string> names;
  for (const json::object* flags : {flags_before, flags_now})
    for (const auto& flag : *flags) names.emplace(flag.key());
  const std::string digest_before = text_member(before, "model_digest");
  const bool is_other_model =
      !digest_before.empty() && digest_before != text_member(now, "model_digest");
  if (is_other_model) names.insert("--hf-checkpoint");
  std::vector<ChangedSetting> changes;
  for (const std::string& name : names) {
    const json::value* old_value = flags_before->if_contains(name);
    const json::value* new_value = flags_now->if_contains(name);
    const bool is_model = name == "--hf-checkpoint";
    const bool is_same = old_value == new_value ||
                         (old_value != nullptr && new_value != nullptr && *old_value == *new_value);
    if (has_meaning(name, Meaning::kPlace) || (is_same && !(is_model && is_other_model))) continue;
    ChangedSetting change{
        .flag = name, .before = text_of(name, old_value), .now = text_of(name, new_value)};
    const auto effect = std::ranges::find(kEffects, name, &Effect::flag);
    if (effect != kEffects.end()) change.effect = effect->effect;
    if (is_model && is_same) change.effect = "its files are others now";
    change.is_other_experiment =
        has_meaning(name, Meaning::kExperiment) || (is_model && is_other_model);
    changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<std::string> table_of(const std::vector<ChangedSetting>& changes,
                                  const std::string& where) {
  if (changes.empty()) return {};
  std::size_t width = 0;
  for (const ChangedSetting& change : changes) width = std::max(width, change.flag.size());
  std::vector<std::string> lines{fmt::format("settings that {} was not written with:", where)};
  for (const ChangedSetting& change : changes) {
    lines.push_back(fmt::format("  {:<{}}  {} -> {}{}", change.flag, width, change.before,
                                change.now,
                                change.effect.empty() ? "" : fmt::format(" ({})", change.effect)));
  }
  return lines;
}

void check_experiment(const std::vector<ChangedSetting>& changes, const config::RunConfig& config,
                      const std::string& where) {
  if (config.allow_other_experiment) return;
  std::vector<std::string> problems;
  for (const ChangedSetting& change : changes) {
    if (!change.is_other_experiment) continue;
    problems.push_back(fmt::format(
        "{}: {} was written with {}, this command has {}; that is another experiment. "
        "--allow-other-experiment goes on all the same; --finetune takes the weights alone and "
        "begins at rollout 0, in another --run-dir",
        change.flag, where, change.before, change.now));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

uint32_t left_out_by(const std::vector<ChangedSetting>& changes) {
  const bool is_frozen_otherwise = std::ranges::any_of(changes, [](const ChangedSetting& change) {
    return has_meaning(change.flag, Meaning::kFrozen);
  });
  return is_frozen_otherwise ? uint32_t{train::kOtherFreeze} : 0U;
}

}  // namespace slime::loop
