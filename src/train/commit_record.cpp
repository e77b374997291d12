#include "train/commit_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/replace_file.h"
#include "net/digest.h"
#include "train/checkpoint_directory.h"

namespace slime::train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRecordPrefix = "committed_";
constexpr std::string_view kRecordSuffix = ".json";

json::object files_of_record(const fs::path& root, const std::string& checkpoint) {
  const fs::path committed = root / checkpoint / "COMMITTED";
  const json::value list = read_json_file(committed);
  if (!list.is_object()) throw ConfigError(committed.string() + ": should be an object");
  json::object files;
  const FieldReader fields(list.get_object(), committed.string() + ": ");
  for (const FieldReader& entry : fields.required().list("files")) {
    const std::string name = *entry.required().text("file");
    json::object file{{"size", *entry.required().integer("size", 0)}};
    if (name.ends_with(kRecordSuffix))
      file["sha256"] = net::sha256_of_file(root / checkpoint / name);
    files[checkpoint + "/" + name] = std::move(file);
  }
  return files;
}

/// What of a record's entry is not so; empty: nothing.
std::string damage_of_file(const fs::path& root, const std::string& name,
                           const json::value& entry) {
  const fs::path relative = fs::path(name).lexically_normal();
  if (relative.is_absolute() || relative.empty() || *relative.begin() == "..")
    return "should be a path in the folder of the checkpoints";
  if (!entry.is_object()) return "should be an object";
  const FieldReader fields(entry.get_object(), "");
  const int64_t size = *fields.required().integer("size", 0);
  std::error_code error;
  const auto found = static_cast<int64_t>(fs::file_size(root / relative, error));
  if (error) return error.message();
  if (found != size) return fmt::format("{} bytes, where the record says {}", found, size);
  const auto sum = fields.text("sha256");
  if (sum && net::sha256_of_file(root / relative) != *sum)
    return "has another content (sha256) than the record says";
  return "";
}

}  // namespace

fs::path rollout_folder(const fs::path& root) { return root / "rollout"; }

fs::path commit_record(const fs::path& root, int64_t iteration) {
  return rollout_folder(root) / fmt::format("{}{}{}", kRecordPrefix, iteration, kRecordSuffix);
}

std::optional<int64_t> iteration_of_record(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kRecordPrefix) || !name.ends_with(kRecordSuffix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(
      kRecordPrefix.size(), name.size() - kRecordPrefix.size() - kRecordSuffix.size());
  int64_t iteration = 0;
  const auto [rest, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), iteration);
  if (status != std::errc() || rest != digits.data() + digits.size() || iteration < 0)
    return std::nullopt;
  return iteration;
}

void write_commit_record(const fs::path& root, int64_t iteration, const json::object& more) {
  const fs::path path = commit_record(root, iteration);
  json::object record{{"version", 1}, {"rollout_id", iteration}};
  for (const auto& member : more) record[member.key()] = member.value();
  record["files"] = files_of_record(root, checkpoint_name(iteration));
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path unfinished = path.parent_path() / fmt::format(".{}", path.filename().string());
  replace_file(unfinished, to_pretty_json(record));
  sync_path(unfinished);
  const bool is_linked = ::link(unfinished.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (is_linked || reason == EEXIST) {
    fs::remove(unfinished, error);
  } else {
    // A file system without hard links; one writer has the folder's lock.
    if (!fs::exists(path)) fs::rename(unfinished, path, error);
    if (error)
      throw ConfigError(
          fmt::format("{}: cannot be written: {}", path.string(), std::strerror(reason)));
  }
  if (!is_linked && reason == EEXIST) {
    throw ConfigError(
        fmt::format("{}: is there already; a commit record is written once, so another program has "
                    "written here",
                    path.string()));
  }
  sync_path(path.parent_path());
}

std::string commit_record_damage(const fs::path& root, int64_t iteration) {
  const fs::path path = commit_record(root, iteration);
  try {
    const json::value record = read_json_file(path);
    if (!record.is_object()) return "should be an object";
    const FieldReader fields(record.get_object(), "");
    if (const int64_t version = *fields.required().integer("version"); version != 1)
      return fmt::format("version {}: should be 1", version);
    if (const int64_t said = *fields.required().integer("rollout_id", 0); said != iteration)
      return fmt::format("rollout_id {}: its name says {}", said, iteration);
    if (const auto is_resumable = fields.boolean("resumable"); is_resumable && !*is_resumable)
      return "resumable: false: nothing goes on from this checkpoint";
    const json::object* files = fields.required().object("files");
    if (files->empty()) return "files: names none";
    for (const auto& member : *files) {
      const std::string name(member.key());
      if (const std::string wrong = damage_of_file(root, name, member.value()); !wrong.empty())
        return fmt::format("files: {}: {}", name, wrong);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void remove_commit_records(const fs::path& root, std::optional<int64_t> first) {
  std::error_code none;
  std::vector<fs::path> gone;
  for (const fs::directory_entry& entry : fs::directory_iterator(rollout_folder(root), none)) {
    const std::optional<int64_t> iteration = iteration_of_record(entry.path());
    if (!iteration) continue;
    if ((first && *iteration >= *first) || !fs::exists(root / checkpoint_name(*iteration)))
      gone.push_back(entry.path());
  }
  for (const fs::path& path : gone) fs::remove(path, none);
}

}  // namespace slime::train
