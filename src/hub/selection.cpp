#include "hub/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "config/yaml.h"
#include "core/error.h"

namespace slime::hub {
namespace {

using Paths = std::vector<std::string>;

bool ends_with_one_of(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [&](std::string_view ending) { return text.ends_with(ending); });
}

bool is_at_top(std::string_view path) { return path.find('/') == std::string_view::npos; }

std::string_view name_in(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// Configuration, tokenizer, template. Indices of weights in other forms are of no use.
bool is_text_of_model(std::string_view path) {
  if (!is_at_top(path) || path.starts_with('.')) return false;
  if (path.ends_with(".index.json")) return path == "model.safetensors.index.json";
  return ends_with_one_of(path, {".json", ".txt", ".model", ".tiktoken", ".jinja"});
}

/// "model.safetensors" and its shards, or else whatever there is beside it.
Paths weights_of(const Paths& paths) {
  Paths all, named;
  for (const std::string& path : paths) {
    if (!is_at_top(path) || !path.ends_with(".safetensors")) continue;
    all.push_back(path);
    if (path.starts_with("model")) named.push_back(path);
  }
  return named.empty() ? all : named;
}

Paths first_few(const Paths& paths) {
  constexpr std::size_t kShown = 8;
  Paths few(paths.begin(),
            paths.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, paths.size())));
  if (paths.size() > kShown) few.push_back(fmt::format("... and {} more", paths.size() - kShown));
  return few;
}

[[noreturn]] void refuse_weights(const HubName& name, const Paths& paths) {
  for (const std::string& path : paths) {
    if (!ends_with_one_of(path, {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf"}))
      continue;
    throw ConfigError(fmt::format(
        "model {}: has no safetensors; {} is {}. Another revision may have them (NAME@refs/pr/1), "
        "or a program that you trust with such files converts them",
        name.text(), path,
        path.ends_with(".gguf") ? "for other programs (tools/gguf_to_hf.py converts it)"
                                : "of a form that can run code when it is read"));
  }
  throw ConfigError(fmt::format("model {}: has no safetensors; it has {}", name.text(),
                                fmt::join(first_few(paths), ", ")));
}

// Splits of data sets.

/// What the parts of a path's names say of its split, as the hub's tools read them.
std::string split_in(std::string_view text) {
  static constexpr auto kWords = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"train", "train"},
      {"training", "train"},
      {"validation", "validation"},
      {"valid", "validation"},
      {"val", "validation"},
      {"dev", "validation"},
      {"test", "test"},
      {"testing", "test"},
      {"eval", "test"},
      {"evaluation", "test"},
  });
  std::string word;
  const auto known = [&]() -> std::string_view {
    for (const auto& [each, split] : kWords)
      if (word == each) return split;
    return {};
  };
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter) {
      word += static_cast<char>(c | 0x20);
      continue;
    }
    if (const auto split = known(); !split.empty()) return std::string(split);
    word.clear();
  }
  return std::string(known());
}

/// By the file's own name, or else by the innermost folder that says one; "train" where none does.
std::string split_of(std::string_view path, bool& is_said) {
  while (true) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (std::string split = split_in(part); !split.empty()) {
      is_said = true;
      return split;
    }
    if (slash == std::string_view::npos) return "train";
    path = path.substr(0, slash);
  }
}

/// Configurations in the order of the page, and their splits.
struct Configuration {
  std::string name;
  bool is_default = false;
  std::vector<std::pair<std::string, Paths>> splits = {};  // name, files

  const Paths* find(std::string_view split) const {
    const auto found = std::ranges::find(splits, split, &std::pair<std::string, Paths>::first);
    return found == splits.end() ? nullptr : &found->second;
  }
};

bool matches(const std::string& pattern, const std::string& path) {
  const bool crosses = pattern.find("**") != std::string::npos;
  return ::fnmatch(pattern.c_str(), path.c_str(), crosses ? 0 : FNM_PATHNAME) == 0;
}

Paths matching(const json::value& patterns, const Paths& data, const std::string& folder) {
  Paths found;
  const auto add = [&](const json::value& each) {
    if (!each.is_string()) return;
    std::string pattern = folder + std::string(each.get_string());
    if (pattern.starts_with("./")) pattern.erase(0, 2);
    for (const std::string& path : data) {
      const bool is_new = std::ranges::find(found, path) == found.end();
      if (is_new && (path == pattern || matches(pattern, path))) found.push_back(path);
    }
  };
  if (patterns.is_array())
    for (const json::value& each : patterns.get_array()) add(each);
  else
    add(patterns);
  std::ranges::sort(found);
  return found;
}

std::string text_in(const json::object& entry, std::string_view key) {
  const json::value* value = entry.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

/// By split words in the paths.
void add_splits_by_words(Configuration& configuration, const Paths& data) {
  std::map<std::string, Paths> by_split;
  Paths unsaid;
  for (const std::string& path : data) {
    bool is_said = false;
    const std::string split = split_of(path, is_said);
    if (is_said)
      by_split[split].push_back(path);
    else
      unsaid.push_back(path);
  }
  // Beside files whose names say a split, others are something else.
  if (by_split.empty()) by_split["train"] = unsaid;
  for (auto& [split, files] : by_split) configuration.splits.emplace_back(split, std::move(files));
}

void add_splits_of_page(Configuration& configuration, const json::value& data_files,
                        const Paths& data, const std::string& folder) {
  const auto add = [&](const std::string& split, const json::value& patterns) {
    Paths files = matching(patterns, data, folder);
    if (!files.empty()) configuration.splits.emplace_back(split, std::move(files));
  };
  const json::array* list = data_files.if_array();
  const bool has_splits = list != nullptr && !list->empty() && list->front().is_object();
  if (!has_splits) {
    add("train", data_files);
    return;
  }
  for (const json::value& each : *list) {
    const json::object* entry = each.if_object();
    const json::value* path = entry == nullptr ? nullptr : entry->if_contains("path");
    if (path != nullptr) add(text_in(*entry, "split"), *path);
  }
}

/// The YAML between two lines of "---" at the head of a page.
std::string head_of(std::string_view page) {
  constexpr std::string_view kRule = "---\n";
  if (!page.starts_with(kRule)) return "";
  const std::size_t end = page.find("\n---", kRule.size());
  return end == std::string_view::npos
             ? ""
             : std::string(page.substr(kRule.size(), end - kRule.size() + 1));
}

std::vector<Configuration> configurations_of(const HubName& name, const Paths& data,
                                             std::string_view page) {
  std::vector<Configuration> found;
  json::value head;
  std::string text(page);
  std::erase(text, '\r');
  if (const std::string yaml = head_of(text); !yaml.empty()) {
    try {
      head = config::parse_yaml(yaml, name.text());
    } catch (const ConfigError&) {
      head = nullptr;  // the page is for people: names of files say enough
    }
  }
  const json::value* list = head.is_object() ? head.get_object().if_contains("configs") : nullptr;
  if (list != nullptr && list->is_array()) {
    for (const json::value& each : list->get_array()) {
      const json::object* entry = each.if_object();
      if (entry == nullptr) continue;
      Configuration configuration{.name = text_in(*entry, "config_name")};
      const json::value* is_default = entry->if_contains("default");
      configuration.is_default =
          is_default != nullptr && is_default->is_bool() && is_default->get_bool();
      std::string folder = text_in(*entry, "data_dir");
      if (!folder.empty() && !folder.ends_with('/')) folder += '/';
      if (const json::value* files = entry->if_contains("data_files")) {
        add_splits_of_page(configuration, *files, data, folder);
      } else {
        Paths inside;
        for (const std::string& path : data)
          if (path.starts_with(folder)) inside.push_back(path);
        add_splits_by_words(configuration, inside);
      }
      if (!configuration.splits.empty()) found.push_back(std::move(configuration));
    }
  }
  if (!found.empty()) return found;
  Configuration whole{.name = "default"};
  add_splits_by_words(whole, data);
  return {whole};
}

Paths names_of(const std::vector<Configuration>& configurations) {
  Paths names;
  for (const Configuration& each : configurations) names.push_back(each.name);
  return names;
}

Paths splits_of(const Configuration& configuration) {
  Paths names;
  for (const auto& [split, files] : configuration.splits) names.push_back(split);
  return names;
}

/// A folder of files without a page: "main/train" means the files below main.
std::optional<Configuration> folder_as_configuration(const std::string& folder, const Paths& data) {
  Paths inside;
  for (const std::string& path : data)
    if (path.starts_with(folder + "/")) inside.push_back(path);
  if (inside.empty()) return std::nullopt;
  Configuration configuration{.name = folder};
  add_splits_by_words(configuration, inside);
  return configuration;
}

}  // namespace

std::vector<std::string> files_of_model(const HubName& name, const Paths& paths, Wanted wanted) {
  if (std::ranges::find(paths, "config.json") == paths.end()) {
    if (std::ranges::find(paths, "adapter_config.json") != paths.end())
      throw ConfigError(
          fmt::format("model {}: is an adapter (LoRA): name its model, and give the adapter's "
                      "directory as --lora-adapter-path",
                      name.text()));
    throw ConfigError(fmt::format("model {}: has no config.json; it has {}", name.text(),
                                  fmt::join(first_few(paths), ", ")));
  }
  if (wanted == Wanted::kConfig) return {"config.json"};
  Paths files;
  for (const std::string& path : paths)
    if (is_text_of_model(path)) files.push_back(path);
  if (wanted == Wanted::kModel) {
    const Paths weights = weights_of(paths);
    if (weights.empty()) refuse_weights(name, paths);
    files.insert(files.end(), weights.begin(), weights.end());
  }
  std::ranges::sort(files);
  return files;
}

bool is_data_file(std::string_view path) {
  static constexpr auto kDescriptions = std::to_array<std::string_view>(
      {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json", "config.json",
       "package.json"});
  const std::string_view name = name_in(path);
  if (path.starts_with('.') || path.find("/.") != std::string_view::npos ||
      std::ranges::find(kDescriptions, name) != kDescriptions.end())
    return false;
  std::string_view form = name;
  for (const std::string_view packed : {".gz", ".zst"})
    if (form.ends_with(packed)) form.remove_suffix(packed.size());
  if (form == name && ends_with_one_of(name, {".parquet", ".arrow"})) return true;
  return ends_with_one_of(form, {".jsonl", ".json", ".csv"});
}

DataSelection files_of_data(const HubName& name, const Paths& paths, std::string_view page,
                            std::string_view default_split) {
  Paths data;
  for (const std::string& path : paths)
    if (is_data_file(path)) data.push_back(path);
  std::ranges::sort(data);
  if (std::ranges::find(data, name.part) != data.end()) return {.files = {name.part}, .note = ""};
  if (data.empty()) {
    throw ConfigError(
        fmt::format("data set {}: has no Parquet, JSON, CSV or Arrow files; it has {}. A data set "
                    "that a script makes "
                    "may have Parquet files as {}@refs/convert/parquet",
                    name.text(), fmt::join(first_few(paths), ", "), name.repo));
  }
  if (is_data_file(name.part))
    throw ConfigError(fmt::format("data set {}: has no file {}; it has {}", name.text(), name.part,
                                  fmt::join(first_few(data), ", ")));

  std::vector<Configuration> configurations = configurations_of(name, data, page);
  DataSelection selection;
  std::string split = name.part;
  const Configuration* chosen = nullptr;
  if (const std::size_t slash = name.part.rfind('/'); slash != std::string::npos) {
    const std::string wanted = name.part.substr(0, slash);
    split = name.part.substr(slash + 1);
    const auto found = std::ranges::find(configurations, wanted, &Configuration::name);
    if (found != configurations.end()) {
      chosen = &*found;
    } else if (auto folder = folder_as_configuration(wanted, data)) {
      configurations.push_back(std::move(*folder));
      chosen = &configurations.back();
    } else {
      throw ConfigError(fmt::format("data set {}: has no configuration {}; it has {}", name.text(),
                                    wanted, fmt::join(first_few(names_of(configurations)), ", ")));
    }
  } else {
    auto found = std::ranges::find_if(configurations, &Configuration::is_default);
    if (found == configurations.end())
      found = std::ranges::find(configurations, "default", &Configuration::name);
    const bool is_first = found == configurations.end();
    if (is_first) found = configurations.begin();
    chosen = &*found;
    if (is_first && configurations.size() > 1) {
      selection.note = fmt::format(
          "data set {}: configuration {} of {}; {}:{}/... would name another", name.text(),
          chosen->name, fmt::join(first_few(names_of(configurations)), ", "), name.repo,
          configurations.back().name);
    }
  }
  if (split.empty()) {
    if (chosen->splits.size() == 1)
      split = chosen->splits.front().first;
    else if (chosen->find(default_split) != nullptr)
      split = default_split;
    else
      throw ConfigError(fmt::format("data set {}: which of its splits {}? For example {}:{}",
                                    name.text(), fmt::join(first_few(splits_of(*chosen)), ", "),
                                    name.text(), chosen->splits.front().first));
  }
  const Paths* files = chosen->find(split);
  if (files == nullptr) {
    throw ConfigError(
        fmt::format("data set {}: has no split {}{}; it has {}", name.text(), split,
                    configurations.size() > 1 ? " in its configuration " + chosen->name : "",
                    fmt::join(first_few(splits_of(*chosen)), ", ")));
  }
  selection.files = *files;
  return selection;
}

std::string escaped_pattern(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (std::string_view("*?[]{},\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string pattern_of(const Paths& files, const Paths& all) {
  if (files.size() == 1) return escaped_pattern(files.front());
  // "PREFIX*SUFFIX", if it means these files alone.
  std::string prefix = files.front(), suffix = files.front();
  for (const std::string& file : files) {
    const auto same = std::ranges::mismatch(prefix, file);
    prefix.erase(same.in1, prefix.end());
    std::size_t count = 0;
    while (count < std::min(suffix.size(), file.size()) &&
           suffix[suffix.size() - 1 - count] == file[file.size() - 1 - count])
      ++count;
    suffix.erase(0, suffix.size() - count);
  }
  const std::string pattern = escaped_pattern(prefix) + "*" + escaped_pattern(suffix);
  Paths meant;
  for (const std::string& path : all)
    if (::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0) meant.push_back(path);
  std::ranges::sort(meant);
  Paths sorted = files;
  std::ranges::sort(sorted);
  if (meant == sorted) return pattern;
  std::vector<std::string> words;
  for (const std::string& file : sorted) words.push_back(escaped_pattern(file));
  return fmt::format("{{{}}}", fmt::join(words, ","));
}

}  // namespace slime::hub
