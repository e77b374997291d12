#include "report/run_list.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "config/users_functions.h"
#include "core/error.h"
#include "report/metric_row.h"
#include "report/run_files.h"
#include "report/run_history.h"
#include "train/checkpoint_directory.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;
constexpr int64_t kTail = int64_t{256} << 10;  // bytes of metrics that are looked at
constexpr std::size_t kMostRuns = 10'000;

/// Flags that say where things lie, or which step a command begins with.
bool is_place(std::string_view flag) {
  constexpr std::array<std::string_view, 9> kPlaces{
      "--run-dir",          "--save",      "--load",
      "--ckpt-step",        "--overwrite", "--save-debug-rollout-data",
      "--start-rollout-id", "--dry-run",   "--wandb-dir"};
  return std::ranges::find(kPlaces, flag) != kPlaces.end();
}

json::object settings_of(const json::object& run) {
  json::object settings;
  const json::object* flags = flags_in(run);
  if (flags == nullptr) return settings;
  for (const auto& flag : *flags)
    if (!is_place(flag.key())) settings[flag.key()] = flag.value();
  return settings;
}

std::vector<std::string> changes(const json::object& before, const json::object& now) {
  std::set<std::string, std::less<>> names;
  for (const auto& flag : before) names.emplace(flag.key());
  for (const auto& flag : now) names.emplace(flag.key());
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const json::value* one = before.if_contains(name);
    const json::value* other = now.if_contains(name);
    if (one != nullptr && other != nullptr && *one == *other) continue;
    found.push_back(fmt::format("{} {} -> {}", name, setting_text(one), setting_text(other)));
  }
  return found;
}

/// Rows are trained, whose rewards are 0 in the metrics and mean nothing.
bool trains_on_rows(const json::object& flags) {
  const auto text = [&flags](const char* name) {
    const json::value* value = flags.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
  };
  const std::string loss = text("--loss-type");
  return loss == "dpo_loss" ||
         (loss == "sft_loss" && config::names_rows(text("--rollout-function-path")));
}

/// The last rows of metrics: the step, its time, and the last reward.
void read_tail(const fs::path& metrics, ListedBranch& branch) {
  std::ifstream file(metrics, std::ios::binary | std::ios::ate);
  if (!file) return;
  const auto size = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, size - kTail));
  std::string line;
  if (size > kTail) std::getline(file, line);  // begins in the middle
  while (std::getline(file, line)) {
    const std::optional<json::object> row = read_metric_row(line);
    const auto step = row ? step_of_row(*row) : std::nullopt;
    if (!step) continue;
    branch.last_step = std::max(branch.last_step, *step);
    if (const json::value* time = row->if_contains("time"); time != nullptr && time->is_number())
      branch.time = time->to_number<double>();
    const auto set = [&row](const char* name, std::optional<double>& number) {
      const json::value* value = row->if_contains(name);
      if (value != nullptr && value->is_number()) number = value->to_number<double>();
    };
    set("rollout/raw_reward", branch.reward);
    set("train/loss", branch.loss);
  }
}

enum class RunHolder { kNobody, kThisHost, kOtherHost };

/// Who has the run's lock, without taking it: a start would be refused meanwhile. Locks of other
/// hosts are not shown here, so the file's word counts for them.
RunHolder holder_of_run(const fs::path& lock, std::string& host) {
  struct stat status {};
  if (::stat(lock.c_str(), &status) != 0) return RunHolder::kNobody;
  const std::string file =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);)
    if (line.find(" " + file + " ") != std::string::npos) return RunHolder::kThisHost;
  std::ifstream text(lock);
  const std::string said{std::istreambuf_iterator<char>(text), {}};
  const std::optional<json::value> record = try_parse_json(said);
  const json::value* name =
      record && record->is_object() ? record->get_object().if_contains("host") : nullptr;
  const json::value* pid =
      record && record->is_object() ? record->get_object().if_contains("pid") : nullptr;
  if (name == nullptr || !name->is_string() || pid == nullptr || !pid->is_int64())
    return RunHolder::kNobody;
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  host = std::string(name->get_string());
  if (host != own.data()) return RunHolder::kOtherHost;
  // Where a file system names its files otherwise there.
  std::error_code none;
  const fs::path real = fs::canonical(lock, none);
  for (const fs::directory_entry& open :
       fs::directory_iterator(fmt::format("/proc/{}/fd", pid->get_int64()), none)) {
    std::error_code gone;
    if (fs::read_symlink(open.path(), gone) == real) return RunHolder::kThisHost;
  }
  return RunHolder::kNobody;
}

/// The first line of what ended a run.
std::string reason_of_end(const json::object& run) {
  const json::value* end = run.if_contains("ended");
  const json::value* why =
      end != nullptr && end->is_object() ? end->get_object().if_contains("why") : nullptr;
  if (why == nullptr || !why->is_string()) return "";
  const std::string text(why->get_string());
  return text.substr(0, text.find('\n'));
}

std::string ended(const json::object& run) {
  const json::value* end = run.if_contains("ended");
  const json::value* how =
      end != nullptr && end->is_object() ? end->get_object().if_contains("how") : nullptr;
  return how != nullptr && how->is_string() ? std::string(how->get_string()) : "";
}

std::string state_of(const ListedBranch& branch, const json::object& run, RunHolder holder,
                     const std::string& host) {
  const std::string how = ended(run);
  const bool is_done = branch.num_steps > 0 && branch.last_step + 1 >= branch.num_steps;
  if (branch.is_active && holder == RunHolder::kThisHost) return "running";
  if (how == "failed" || how == "interrupted") return how;
  if (how == "finished" || is_done) return "finished";
  if (branch.last_step < 0) return "not begun";
  if (branch.is_active && holder == RunHolder::kOtherHost)
    return fmt::format("died or on {}", host);
  return "died";
}

ListedBranch read_branch(const BranchPlace& base, const std::string& name) {
  const BranchPlace place = place_of_branch(base, name);
  std::vector<std::string> ignored;
  const json::object run = read_run_record(place.root / "run.json", ignored);
  ListedBranch branch{.name = name, .folder = place.root, .flags = settings_of(run)};
  const auto number = [&](std::string_view key) {
    const json::value* value = run.if_contains(key);
    return value != nullptr && value->is_int64() ? value->get_int64() : int64_t{0};
  };
  branch.num_steps = number("num_rollout");
  std::error_code unknown;
  struct stat status {};
  if (::stat((place.root / "run.json").c_str(), &status) == 0)
    branch.time = static_cast<double>(status.st_mtime);
  branch.checkpoints = train::committed_iterations(place.checkpoints);
  read_tail(place.root / "metrics.jsonl", branch);
  if (trains_on_rows(branch.flags)) branch.reward.reset();
  std::string host;
  const RunHolder holder = holder_of_run(base.root / "lock", host);
  try {
    branch.is_active = named_branch(base) == name;
  } catch (const std::exception&) {
    branch.is_active = name == kMainBranch;  // a damaged file: the start says which
  }
  try {
    if (const auto origin = origin_of_branch(base, name)) {
      branch.parent = origin->parent;
      branch.from = origin->step;
    }
  } catch (const std::exception&) {  // shown without
  }
  branch.state = state_of(branch, run, holder, host);
  if (branch.state == "failed") branch.why = reason_of_end(run);
  return branch;
}

void add_children(ListedBranch& parent, std::vector<ListedBranch>& others) {
  for (ListedBranch& other : others) {
    if (other.parent != parent.name || other.name.empty()) continue;
    ListedBranch child = std::move(other);
    other.name.clear();
    child.differences = changes(parent.flags, child.flags);
    add_children(child, others);
    parent.children.push_back(std::move(child));
  }
  std::ranges::sort(parent.children, {}, &ListedBranch::from);
}

/// Where checkpoints are is a flag of the run.
fs::path checkpoints_of(const fs::path& root) {
  std::vector<std::string> ignored;
  const json::object run = read_run_record(root / "run.json", ignored);
  const json::object* flags = flags_in(run);
  const json::value* save = flags != nullptr ? flags->if_contains("--save") : nullptr;
  if (fs::exists(root / "checkpoints") || save == nullptr || !save->is_string())
    return root / "checkpoints";
  const fs::path given = std::string(save->get_string());
  std::error_code unknown;
  if (fs::exists(given, unknown)) return given;
  // The link to the newest survives where the folder was moved with all.
  const fs::path latest = fs::canonical(root / "latest", unknown);
  return unknown ? root : latest.parent_path();
}

ListedRun read_run(const fs::path& root, const std::string& name) {
  fs::path checkpoints = checkpoints_of(root);
  // Of a run in a branch `latest` leads into the branch.
  const fs::path above = checkpoints.parent_path();
  if (above.filename() == "branches") checkpoints = above.parent_path();
  const BranchPlace base{root, checkpoints};
  ListedRun run{.folder = root, .name = name, .main = read_branch(base, kMainBranch)};
  std::vector<ListedBranch> others;
  for (const std::string& branch : branch_names(base))
    if (branch != kMainBranch) others.push_back(read_branch(base, branch));
  add_children(run.main, others);
  for (ListedBranch& lost : others) {  // of a parent that is not there
    if (lost.name.empty()) continue;
    if (!lost.parent.empty())
      lost.differences.push_back(fmt::format("its parent {} is deleted", lost.parent));
    run.main.children.push_back(std::move(lost));
  }
  try {
    const std::string active = named_branch(base);
    const std::vector<std::string> names = branch_names(base);
    if (std::ranges::find(names, active) == names.end()) run.lost_branch = active;
  } catch (const std::exception&) {  // a damaged file: the start says so
  }
  return run;
}

void find_runs(const fs::path& folder, int depth, std::vector<fs::path>& found) {
  std::error_code none;
  if (fs::is_regular_file(folder / "run.json", none) && !fs::exists(folder / "COMMITTED", none)) {
    found.push_back(folder);
    return;
  }
  if (depth == 0) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (found.size() >= kMostRuns) return;
    if (entry.is_directory(none) && !entry.is_symlink(none) &&
        !entry.path().filename().string().starts_with('.'))
      find_runs(entry.path(), depth - 1, found);
  }
}

/// What each run sets and not all of them set alike.
void tell_runs_apart(std::vector<ListedRun>& runs) {
  if (runs.size() < 2) return;
  std::map<std::string, std::set<std::string>, std::less<>> values;
  for (const ListedRun& run : runs)
    for (const auto& flag : run.main.flags) values[std::string(flag.key())];
  for (auto& [name, seen] : values)
    for (const ListedRun& run : runs) seen.insert(setting_text(run.main.flags.if_contains(name)));
  for (ListedRun& run : runs) {
    for (const auto& [name, seen] : values) {
      if (seen.size() > 1 && run.main.flags.contains(name))
        run.main.differences.push_back(name + " " + setting_text(run.main.flags.if_contains(name)));
    }
  }
}

json::object to_json(const ListedBranch& branch) {
  json::object object{{"branch", branch.name},
                      {"folder", branch.folder.string()},
                      {"state", branch.state},
                      {"why", branch.why},
                      {"is_active", branch.is_active},
                      {"last_step", branch.last_step},
                      {"num_steps", branch.num_steps},
                      {"reward", nullptr},
                      {"loss", nullptr},
                      {"time", branch.time},
                      {"checkpoints", json::value_from(branch.checkpoints)},
                      {"flags", branch.flags},
                      {"differences", json::value_from(branch.differences)}};
  if (branch.reward) object["reward"] = *branch.reward;
  if (branch.loss) object["loss"] = *branch.loss;
  if (!branch.parent.empty()) {
    object["parent"] = branch.parent;
    object["from_step"] = branch.from;
  }
  json::array children;
  for (const ListedBranch& child : branch.children) children.push_back(to_json(child));
  object["branches"] = std::move(children);
  return object;
}

/// Of a run in the only folder that was asked for.
std::string name_in(const fs::path& folder, const fs::path& root) {
  if (root != folder) return root.lexically_relative(folder).string();
  const fs::path whole = fs::absolute(root).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::string setting_text(const json::value* value) {
  if (value == nullptr) return "(default)";
  if (value->is_string()) return std::string(value->get_string());
  if (value->is_bool()) return value->get_bool() ? "given" : "not given";
  if (const json::array* list = value->if_array()) {
    std::string words;
    for (const json::value& word : *list) words += (words.empty() ? "" : " ") + setting_text(&word);
    return words;
  }
  return json_text(*value);
}

std::vector<ListedRun> list_runs(const std::vector<fs::path>& folders) {
  std::vector<ListedRun> runs;
  std::set<fs::path> seen;
  for (const fs::path& folder : folders) {
    std::vector<fs::path> found;
    find_runs(folder, kDeepest, found);
    for (const fs::path& root : found) {
      std::error_code unknown;
      if (!seen.insert(fs::weakly_canonical(root / "", unknown)).second) continue;
      const std::string name =
          folders.size() > 1 ? root.lexically_normal().string() : name_in(folder, root);
      runs.push_back(read_run(root, name));
    }
  }
  std::ranges::sort(runs, {}, [](const ListedRun& run) { return run.main.time; });
  tell_runs_apart(runs);
  return runs;
}

void sort_runs(std::vector<ListedRun>& runs, const std::string& key) {
  if (key == "age") {
    std::ranges::stable_sort(runs, {}, [](const ListedRun& run) { return run.main.time; });
  } else if (key == "name") {
    std::ranges::stable_sort(runs, {}, &ListedRun::name);
  } else if (key == "state") {
    std::ranges::stable_sort(runs, {}, [](const ListedRun& run) { return run.main.state; });
  } else if (key == "step") {
    std::ranges::stable_sort(runs, {}, [](const ListedRun& run) { return run.main.last_step; });
  } else if (key == "reward") {
    std::ranges::stable_sort(runs, {}, [](const ListedRun& run) {
      const double reward = run.main.reward.value_or(NAN);
      return std::isnan(reward) ? -INFINITY : reward;
    });
  } else {
    throw ConfigError(fmt::format("--sort {}: should be age, name, state, step or reward", key));
  }
}

json::array to_json(const std::vector<ListedRun>& runs) {
  json::array array;
  for (const ListedRun& run : runs) {
    json::object object = to_json(run.main);
    object["run"] = run.name;
    if (!run.lost_branch.empty()) object["lost_branch"] = run.lost_branch;
    array.push_back(std::move(object));
  }
  return array;
}

}  // namespace slime::report
