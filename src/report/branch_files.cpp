#include "report/branch_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/replace_file.h"
#include "train/commit_record.h"

namespace slime::report {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBranches = "branches";
constexpr const char* kUnfinished = ".unfinished";

/// As current.json and branch.json name a branch.
std::string directory_of(const std::string& name) {
  return name == kMainBranch ? "." : std::string(kBranches) + "/" + name;
}

/// "main" for one that is none of ours.
std::string name_of(const std::string& directory) {
  return directory == "." ? kMainBranch : fs::path(directory).filename().string();
}

fs::path current_json(const BranchPlace& base) {
  return train::rollout_folder(base.checkpoints) / "current.json";
}

fs::path branch_json(const BranchPlace& place) {
  return train::rollout_folder(place.checkpoints) / "branch.json";
}

json::object read_object(const fs::path& path) {
  json::value value = read_json_file(path);
  if (!value.is_object()) throw ConfigError(path.string() + ": should be an object");
  return std::move(value.get_object());
}

void write_durably(const fs::path& path, const json::object& object) {
  std::error_code told_below;
  fs::create_directories(path.parent_path(), told_below);
  replace_file(path, to_pretty_json(object));
  sync_path(path);
  sync_path(path.parent_path());
}

/// Ours, finished or not.
bool is_branch(const BranchPlace& place) {
  return fs::exists(place.root / kUnfinished) || fs::exists(branch_json(place));
}

/// Folders in branches/ of the run.
std::vector<std::string> folders_of_branches(const BranchPlace& base) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(base.root / kBranches, none)) {
    if (entry.is_directory(none)) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

BranchPlace place_of_branch(const BranchPlace& base, const std::string& name) {
  if (name == kMainBranch) return base;
  const fs::path root = base.root / kBranches / name;
  const bool are_inside = base.checkpoints == base.root / "checkpoints";
  return {root, are_inside ? root / "checkpoints" : base.checkpoints / kBranches / name};
}

std::vector<std::string> branch_names(const BranchPlace& base) {
  std::vector<std::string> names{kMainBranch};
  for (const std::string& name : folders_of_branches(base)) {
    const BranchPlace place = place_of_branch(base, name);
    if (!fs::exists(place.root / kUnfinished) && fs::exists(branch_json(place)))
      names.push_back(name);
  }
  return names;
}

std::string named_branch(const BranchPlace& base) {
  const fs::path path = current_json(base);
  if (!fs::exists(path)) return kMainBranch;
  const json::object current = read_object(path);
  return name_of(*FieldReader(current, path.string() + ": ").required().text("directory"));
}

std::string active_branch(const BranchPlace& base) {
  const fs::path path = current_json(base);
  const std::string name = named_branch(base);
  const std::vector<std::string> names = branch_names(base);
  if (std::ranges::find(names, name) == names.end()) {
    throw ConfigError(fmt::format(
        "{}: names the branch {}, which is not there; --load {} goes on in the first one",
        path.string(), name, (base.root / kBranches / kMainBranch).string()));
  }
  return name;
}

void set_active_branch(const BranchPlace& base, const std::string& name, int64_t step) {
  write_durably(current_json(base),
                {{"version", 1}, {"directory", directory_of(name)}, {"tracker", step}});
}

std::optional<BranchOrigin> origin_of_branch(const BranchPlace& base, const std::string& name) {
  if (name == kMainBranch) return std::nullopt;
  const fs::path path = branch_json(place_of_branch(base, name));
  const json::object object = read_object(path);
  const FieldReader fields(object, path.string() + ": ");
  const FieldReader parent = *fields.required().fields("parent");
  BranchOrigin origin{.parent = name_of(*parent.required().text("directory")),
                      .step = *parent.required().integer("step", 0),
                      .time = fields.number("time").value_or(0)};
  if (const json::object* flags = fields.object("initial_configuration")) origin.flags = *flags;
  return origin;
}

void write_origin(const BranchPlace& base, const std::string& name, const BranchOrigin& origin) {
  const json::object parent{{"directory", directory_of(origin.parent)}, {"step", origin.step}};
  write_durably(branch_json(place_of_branch(base, name)),
                {{"version", 1},
                 {"parent", parent},
                 {"time", origin.time},
                 {"queue_id", "run:" + name},
                 {"initial_configuration", origin.flags}});
}

std::string new_branch_name(const BranchPlace& base) {
  std::random_device entropy;
  for (;;) {
    std::string name = fmt::format("{:08x}", entropy());
    const BranchPlace place = place_of_branch(base, name);
    if (!fs::exists(place.root) && !fs::exists(place.checkpoints)) return name;
  }
}

void mark_unfinished(const BranchPlace& base, const std::string& name) {
  const BranchPlace place = place_of_branch(base, name);
  std::error_code error;
  fs::create_directories(place.root, error);
  if (!error) fs::create_directories(place.checkpoints, error);
  if (error)
    throw ConfigError(
        fmt::format("{}: cannot be created: {}", place.root.string(), error.message()));
  replace_file(place.root / kUnfinished, "");
}

void mark_finished(const BranchPlace& base, const std::string& name) {
  const BranchPlace place = place_of_branch(base, name);
  fs::remove(place.root / kUnfinished);
  sync_path(place.root);
}

void remove_branches(const BranchPlace& base) {
  fs::remove(current_json(base));  // first, so that it never names one that is gone
  for (const std::string& name : folders_of_branches(base)) {
    const BranchPlace place = place_of_branch(base, name);
    if (!is_branch(place)) continue;
    fs::remove_all(place.checkpoints);
    fs::remove_all(place.root);
  }
  std::error_code has_others;
  fs::remove(base.root / kBranches, has_others);
  fs::remove(base.checkpoints / kBranches, has_others);
}

void remove_unfinished_branches(const BranchPlace& base) {
  for (const std::string& name : folders_of_branches(base)) {
    const BranchPlace place = place_of_branch(base, name);
    if (!fs::exists(place.root / kUnfinished)) continue;
    std::error_code remains;  // the next start tries again
    fs::remove_all(place.checkpoints, remains);
    fs::remove_all(place.root, remains);
  }
}

}  // namespace slime::report
