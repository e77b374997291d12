#include "hub/hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "hub/names_like.h"

namespace slime::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightIndex = "model.safetensors.index.json";
constexpr std::size_t kPageBytes = std::size_t{4} << 20;

/// A name that stays one: nothing may be downloaded.
class NotHere : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

std::string read_page(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kPageBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// Shards of weights that an index names and that are not among `paths`.
std::vector<std::string> missing_shards(const fs::path& snapshot,
                                        const std::vector<std::string>& paths) {
  std::error_code error;
  if (!fs::exists(snapshot / kWeightIndex, error)) return {};
  std::set<std::string> missing;
  const json::value index = read_json_file(snapshot / kWeightIndex);
  const json::value* map =
      index.is_object() ? index.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) return {};
  for (const auto& [tensor, file] : map->get_object()) {
    if (!file.is_string()) continue;
    const std::string name(file.get_string());
    if (std::ranges::find(paths, name) == paths.end()) missing.insert(name);
  }
  return {missing.begin(), missing.end()};
}

/// Of "train-00001-of-00005.parquet", those of the five that are not among `paths`.
std::vector<std::string> missing_parts(const std::vector<std::string>& paths) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kMostParts = 100'000;
  std::vector<std::string> missing;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    const std::size_t of = path.rfind(kOf);
    if (of == std::string::npos || of < 6) continue;
    std::size_t count = 0;
    const char* begin = path.data() + of + kOf.size();
    const auto [end, error] = std::from_chars(begin, path.data() + path.size(), count);
    const std::size_t digits = static_cast<std::size_t>(end - begin);
    if (error != std::errc() || count > kMostParts || digits > of) continue;
    const std::string head = path.substr(0, of - digits), tail(path.substr(of));
    if (!seen.insert(head + tail).second) continue;
    for (std::size_t i = 0; i < count; ++i) {
      std::string part = fmt::format("{}{:0{}}{}", head, i, digits, tail);
      if (std::ranges::find(paths, part) == paths.end()) missing.push_back(std::move(part));
    }
  }
  return missing;
}

/// A path stays what it is, and so does a name that may not be downloaded; errors say by which flag it came, and
/// end with `guess()`.
template <typename Find, typename Guess>
std::string found_or_word(const std::string& word, Kind kind, std::string_view flag,
                          const Find& find, const Guess& guess) {
  try {
    const auto name = name_not_path(word, kind);
    return name ? find(*name) : word;
  } catch (const NotHere&) {
    return word;
  } catch (const ConfigError& error) {
    if (is_url_of_hub(word)) throw ConfigError(fmt::format("{}: {}", flag, error.what()));
    throw ConfigError(fmt::format("{} {}: no such {}; as a name on the hub: {}{}", flag, word,
                                  kind == Kind::kModel ? "directory" : "file", error.what(),
                                  guess()));
  }
}

}  // namespace

std::vector<std::string> Hub::Repo::paths() const {
  std::vector<std::string> paths;
  for (const RepoFile& file : listing.files) paths.push_back(file.path);
  return paths;
}

void Hub::refuse_absent(const HubName& name, const RepoCache& cache, const std::string& why) const {
  if (!config_.may_download) throw NotHere(why);
  const bool is_model = name.kind == Kind::kModel;
  throw ConfigError(fmt::format(
      "{}. What works without the hub: (1) where there is a network, `slime download {}{}`, then "
      "copy the folder {} into {} here; (2) HF_HOME, the folder of a cache that has it; (3) the "
      "path of {} in its place",
      why, is_model ? "" : "hf://datasets/", name.text(), cache.folder().filename().string(),
      config_.settings.cache.string(), is_model ? "a model directory" : "its files"));
}

Hub::Repo Hub::open(const HubName& name) const {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  Repo repo{.name = name,
            .cache = RepoCache(config_.settings.cache, name),
            .listing = {},
            .is_listed = false,
            .why_not = ""};
  const RepoCache& cache = repo.cache;
  const auto commit = cache.commit_of(revision);
  const bool may_ask = config_.may_download && !config_.settings.is_offline;
  if (commit && !(config_.refresh && may_ask)) {
    if (auto listing = cache.listing(*commit)) {
      repo.listing = std::move(*listing);
      repo.is_listed = true;
      return repo;
    }
  }
  if (may_ask) {
    try {
      // The commit that is here, not a newer one: a run does not change because it looks again.
      repo.listing = server_.list(name, commit && !config_.refresh ? *commit : revision);
      repo.is_listed = true;
      cache.keep_listing(repo.listing);
      cache.set_commit(revision, repo.listing.commit);
      return repo;
    } catch (const Unreachable& error) {
      repo.why_not = error.what();
      if (config_.refresh) refuse_absent(name, cache, name.text() + ": " + repo.why_not);
    }
  } else {
    repo.why_not = config_.may_download ? "HF_HUB_OFFLINE is set" : "nothing is downloaded";
  }
  if (commit) {
    repo.listing.commit = *commit;
    for (const std::string& path : cache.files_of(*commit))
      repo.listing.files.push_back({.path = path});
  }
  if (repo.listing.files.empty()) {
    refuse_absent(name, cache,
                  fmt::format("{} is not in the cache {}, and {}", name.text(),
                              config_.settings.cache.string(), repo.why_not));
  }
  if (may_ask && config_.say) {
    config_.say(fmt::format("{}: {}; what the cache has of it is used", name.text(), repo.why_not));
  }
  return repo;
}

void Hub::ensure(const Repo& repo, const std::vector<std::string>& paths) const {
  std::vector<RepoFile> missing;
  for (const std::string& path : paths) {
    const RepoFile* file = repo.listing.find(path);
    if (!repo.cache.has(repo.listing.commit, path))
      missing.push_back(file == nullptr ? RepoFile{.path = path} : *file);
  }
  if (missing.empty()) return;
  if (!repo.is_listed || config_.settings.is_offline || !config_.may_download) {
    constexpr std::size_t kShown = 4;
    std::vector<std::string> names;
    for (const RepoFile& file : missing)
      if (names.size() < kShown) names.push_back(file.path);
    const std::size_t more = missing.size() - names.size();
    refuse_absent(
        repo.name, repo.cache,
        fmt::format("{} is in the cache without {}{}, and {}", repo.name.text(),
                    fmt::join(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more),
                    repo.why_not.empty() ? "HF_HUB_OFFLINE is set" : repo.why_not));
  }
  download(repo.name, repo.listing.commit, std::move(missing), repo.cache, server_,
           config_.settings.num_connections, config_.on_transfer);
}

std::string Hub::find_model(const HubName& name, Wanted wanted) const {
  const Repo repo = open(name);
  std::vector<std::string> files;
  try {
    files = files_of_model(name, repo.paths(), wanted);
  } catch (const ConfigError& error) {
    if (repo.is_listed) throw;
    refuse_absent(name, repo.cache,
                  fmt::format("{} (what the cache has of it; {})", error.what(), repo.why_not));
  }
  if (!repo.is_listed && wanted == Wanted::kModel) {
    const auto more = missing_shards(repo.snapshot(), files);
    files.insert(files.end(), more.begin(), more.end());
  }
  ensure(repo, files);
  return repo.snapshot().string();
}

std::string Hub::find_data(const HubName& name, std::string_view default_split) const {
  const Repo repo = open(name);
  const std::vector<std::string> paths = repo.paths();
  std::string page;
  if (std::ranges::find(paths, kDataPage) != paths.end()) {
    ensure(repo, {std::string(kDataPage)});
    page = read_page(repo.snapshot() / kDataPage);
  }
  DataSelection selection;
  try {
    selection = files_of_data(name, paths, page, default_split);
  } catch (const ConfigError& error) {
    if (repo.is_listed) throw;
    refuse_absent(name, repo.cache,
                  fmt::format("{} (what the cache has of it; {})", error.what(), repo.why_not));
  }
  if (!selection.note.empty() && config_.say) config_.say(selection.note);
  std::vector<std::string> files = selection.files;
  if (!repo.is_listed) {
    const auto more = missing_parts(files);
    files.insert(files.end(), more.begin(), more.end());
  }
  ensure(repo, files);
  std::string found = escaped_pattern(repo.snapshot().string()) + "/" + pattern_of(files, paths);
  if (!name.slice.empty()) found += "@" + name.slice;
  return found;
}

std::string Hub::model(const std::string& word, Wanted wanted, std::string_view flag) const {
  return found_or_word(
      word, Kind::kModel, flag, [&](const HubName& name) { return find_model(name, wanted); },
      [&] { return model_guess(word, config_.settings.cache); });
}

std::string Hub::data(const std::string& word, std::string_view default_split,
                      std::string_view flag) const {
  return found_or_word(
      word, Kind::kDataset, flag,
      [&](const HubName& name) { return find_data(name, default_split); },
      [] { return std::string(); });
}

}  // namespace slime::hub
