#include "hub/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/replace_file.h"

namespace slime::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCommitDigits = 40;
constexpr std::size_t kSha256Digits = 64;
constexpr std::size_t kLongestPath = 1024;
constexpr std::size_t kMostFiles = 200'000;  // of a repository

bool is_hexadecimal(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw ConfigError(fmt::format("{}: cannot be created: {}; HF_HOME names another place",
                                  folder.string(), error.message()));
  }
}

std::string folder_name(const HubName& name) {
  std::string text = name.kind == Kind::kModel ? "models--" : "datasets--";
  for (const char c : name.repo) text += c == '/' ? std::string("--") : std::string(1, c);
  return text;
}

}  // namespace

const RepoFile* Listing::find(std::string_view path) const {
  const auto found = std::ranges::find(files, path, &RepoFile::path);
  return found == files.end() ? nullptr : &*found;
}

bool is_commit(std::string_view text) {
  return text.size() == kCommitDigits && is_hexadecimal(text);
}

bool is_checksum(std::string_view text) {
  return (text.size() == kCommitDigits || text.size() == kSha256Digits) && is_hexadecimal(text);
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kLongestPath || path.front() == '/') return false;
  const bool has_odd_bytes = std::ranges::any_of(
      path, [](char c) { return c == '\\' || static_cast<unsigned char>(c) < ' ' || c == 127; });
  if (has_odd_bytes) return false;
  for (const fs::path& part : fs::path(path))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

RepoCache::RepoCache(fs::path root, const HubName& name)
    : root_(std::move(root)), folder_(root_ / folder_name(name)) {}

std::optional<std::string> RepoCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  std::ifstream file(folder_ / "refs" / revision);
  std::string commit;
  std::getline(file, commit);
  while (!commit.empty() && (commit.back() == '\r' || commit.back() == ' ')) commit.pop_back();
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

fs::path RepoCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

bool RepoCache::has(const std::string& commit, std::string_view path) const {
  std::error_code error;
  return fs::is_regular_file(snapshot(commit) / path, error);  // a link to a blob that is there
}

std::vector<std::string> RepoCache::files_of(const std::string& commit) const {
  std::vector<std::string> paths;
  const fs::path root = snapshot(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code missing;
    if (entry->is_regular_file(missing) && paths.size() < kMostFiles)
      paths.push_back(entry->path().lexically_relative(root).string());
  }
  std::ranges::sort(paths);
  return paths;
}

std::optional<Listing> RepoCache::listing(const std::string& commit) const {
  const fs::path path = folder_ / ".slime" / (commit + ".json");
  std::error_code missing;
  if (!fs::exists(path, missing)) return std::nullopt;
  Listing listing{.commit = commit, .files = {}};
  try {
    const json::value read = read_json_file(path);
    for (const json::value& each : read.as_object().at("files").as_array()) {
      const json::object& entry = each.as_object();
      RepoFile file{.path = std::string(entry.at("path").as_string()),
                    .size = entry.at("size").as_int64(),
                    .checksum = std::string(entry.at("checksum").as_string())};
      const bool has_form = is_safe_path(file.path) && file.size >= -1 &&
                            (file.checksum.empty() || is_checksum(file.checksum));
      if (!has_form) return std::nullopt;
      listing.files.push_back(std::move(file));
    }
  } catch (const std::exception&) {
    return std::nullopt;  // half a file of a full disk: the hub is asked again
  }
  return listing;
}

void RepoCache::keep_listing(const Listing& listing) const {
  json::array files;
  for (const RepoFile& file : listing.files)
    files.push_back({{"path", file.path}, {"size", file.size}, {"checksum", file.checksum}});
  make_folder(folder_ / ".slime");
  replace_file(folder_ / ".slime" / (listing.commit + ".json"),
               json_text(json::object{{"commit", listing.commit}, {"files", std::move(files)}}));
}

void RepoCache::set_commit(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision)) return;
  const fs::path path = folder_ / "refs" / revision;
  make_folder(path.parent_path());
  replace_file(path, commit);
}

fs::path RepoCache::blob(const std::string& checksum) const {
  make_folder(folder_ / "blobs");
  return folder_ / "blobs" / checksum;
}

fs::path RepoCache::lock_file(const std::string& checksum) const {
  const fs::path folder = root_ / ".locks" / folder_.filename();
  make_folder(folder);
  return folder / (checksum + ".lock");
}

void RepoCache::link(const std::string& commit, const RepoFile& file) const {
  const fs::path link = snapshot(commit) / file.path;
  make_folder(link.parent_path());
  const fs::path target =
      fs::path(folder_ / "blobs" / file.checksum).lexically_relative(link.parent_path());
  // Beside it and renamed: another process may do the same.
  const fs::path temporary = link.string() + fmt::format(".{}.new", ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error)
    throw ConfigError(fmt::format("{}: no link can be made: {}; HF_HOME names another place",
                                  link.string(), error.message()));
}

}  // namespace slime::hub
