#include "config/adapter_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "config/flag_table.h"
#include "config/secrets.h"
#include "core/error.h"

namespace slime::config {
namespace {

using FlagNames = std::set<std::string, std::less<>>;

/// Of what is there once: base, engine, process, folder.
constexpr std::string_view kOfAll[] = {
    "--adapter", "--run-dir",     "--hf-checkpoint",      "--ref-load",           "--device",
    "--dtype",   "--num-threads", "--rollout-precision",  "--kv-cache-gb",        "--launcher",
    "--dry-run", "--config",      "--from-launch-script", "--allow-unknown-flags"};
constexpr std::string_view kBeginningsOfAll[] = {"--sglang-", "--actor-num-", "--rollout-num-"};

bool is_of_all(std::string_view flag) {
  return std::ranges::find(kOfAll, flag) != std::end(kOfAll) || is_secret_flag(flag) ||
         std::ranges::any_of(kBeginningsOfAll,
                             [&](std::string_view begin) { return flag.starts_with(begin); });
}

/// Empty: the word is no flag.
std::string_view flag_of(std::string_view word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : std::string_view();
}

std::vector<std::string> words_of_adapter(const std::string& text, const std::string& name) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (const char c : text) {
    const bool is_quote = quote != 0 ? c == quote : c == '\'' || c == '"';
    if (!is_quote && quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();  // a quote begins a word, also an empty one
    is_in_word = true;
    if (is_quote) {
      quote = quote != 0 ? 0 : c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0)
    throw ConfigError(fmt::format("--adapter {}: a quote {} has no end", name, quote));
  return words;
}

bool is_folder_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && name.front() != '.' && name.front() != '-' &&
         std::ranges::all_of(name, is_plain);
}

/// "sums" of "sums=--lr 1e-5".
std::string name_of_adapter(const std::string& adapter) {
  std::string name = adapter.substr(0, adapter.find('='));
  if (name.size() < adapter.size() && is_folder_name(name)) return name;
  throw ConfigError(fmt::format(
      "--adapter {}: is NAME=FLAGS, with a name of letters, digits, -, _ and ., such as "
      "'sums=--prompt-data sums.jsonl --lr 1e-5'",
      adapter));
}

/// The flags that `words`, an adapter's own, set. Throws ConfigError for those of all adapters.
FlagNames own_flags(const std::vector<std::string>& words, const std::string& name) {
  if (!words.empty() && flag_of(words.front()).empty()) {
    throw ConfigError(fmt::format("--adapter {}: \"{}\": expected a flag such as --prompt-data",
                                  name, words.front()));
  }
  const auto refuse_of_all = [&](std::string_view flag, std::string_view said) {
    if (!is_of_all(flag)) return;
    throw ConfigError(fmt::format(
        "--adapter {}: {} is of what all adapters share; give it to the command", name, said));
  };
  for (const std::string& word : words)  // before files are read that they name
    refuse_of_all(flag_of(word), flag_of(word));
  ParsedFlags own;
  in_words_of_adapter(name, [&] { own = parse_flags(words); });
  FlagNames flags(own.given.begin(), own.given.end());
  for (const std::string& flag : flags) refuse_of_all(flag, flag);
  for (const auto& [flag, said] : own.said_by_alias) {
    refuse_of_all(flag, said);
    flags.insert(flag);
  }
  return flags;
}

/// `arguments` without these flags, their aliases, and the values of both.
std::vector<std::string> without(std::span<const std::string> arguments, const FlagNames& flags) {
  std::vector<std::string> kept;
  bool is_left_out = false;
  for (const std::string& word : arguments) {
    if (const std::string_view flag = flag_of(word); !flag.empty()) {
      const FlagRow* row = find_flag(flag);
      is_left_out =
          row != nullptr && (flags.contains(row->name) || flags.contains(row->alias.same_as));
    }
    if (!is_left_out) kept.push_back(word);
  }
  return kept;
}

}  // namespace

std::vector<AdapterWords> adapter_words(std::span<const std::string> arguments,
                                        std::span<const std::string> adapters,
                                        const std::string& run_dir) {
  std::vector<AdapterWords> runs;
  std::set<std::string> names;
  for (const std::string& adapter : adapters) {
    const std::string name = name_of_adapter(adapter);
    if (!names.insert(name).second)
      throw ConfigError(fmt::format("--adapter {}: there are two of this name", name));
    const std::vector<std::string> own = words_of_adapter(adapter.substr(name.size() + 1), name);
    FlagNames replaced = own_flags(own, name);
    replaced.insert({"--adapter", "--run-dir"});
    AdapterWords run{name, without(arguments, replaced)};
    run.words.insert(run.words.end(), own.begin(), own.end());
    run.words.insert(run.words.end(), {"--run-dir", run_dir + "/" + name});
    runs.push_back(std::move(run));
  }
  return runs;
}

void check_written_places(std::span<const ParsedFlags> runs) {
  std::map<std::string, std::string> writers;  // "--save DIR", and the adapter whose run has it
  for (const ParsedFlags& run : runs) {
    const RunConfig& config = run.config;
    for (const auto& [flag, place] :
         {std::pair{"--save", &config.save},
          std::pair{"--save-debug-rollout-data", &config.save_debug_rollout_data},
          std::pair{"--wandb-run-id", &config.wandb_run_id}}) {
      if (place->peek().empty()) continue;
      const std::string said = fmt::format("{} {}", flag, place->peek());
      const auto [writer, is_first] = writers.try_emplace(said, config.adapter_name);
      if (is_first) continue;
      throw ConfigError(fmt::format("--adapter {}: {} is that of adapter {} too; give each its own",
                                    config.adapter_name, said, writer->second));
    }
  }
}

void in_words_of_adapter(const std::string& name, const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    std::vector<std::string> lines;
    std::istringstream text(error.what());
    for (std::string line; std::getline(text, line);) {
      const bool goes_on = line.starts_with(' ');  // of the line above
      lines.push_back(goes_on ? line : fmt::format("--adapter {}: {}", name, line));
    }
    throw ConfigError(lines);
  }
}

}  // namespace slime::config
