#include "report/run_list.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "core/error.h"
#include "report/run_files.h"
#include "report/run_history.h"
#include "report/terminal.h"
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
  const json::value* flags = run.if_contains("flags");
  if (flags == nullptr || !flags->is_object()) return settings;
  for (const auto& flag : flags->get_object())
    if (!is_place(flag.key())) settings[flag.key()] = flag.value();
  return settings;
}

std::string text_of(const json::value* value) {
  if (value == nullptr) return "(default)";
  if (value->is_string()) return std::string(value->get_string());
  if (value->is_bool()) return value->get_bool() ? "given" : "not given";
  if (const json::array* list = value->if_array()) {
    std::string words;
    for (const json::value& word : *list) words += (words.empty() ? "" : " ") + text_of(&word);
    return words;
  }
  return json_text(*value);
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
    found.push_back(fmt::format("{} {} -> {}", name, text_of(one), text_of(other)));
  }
  return found;
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
    const std::optional<json::value> row = try_parse_json(line);
    if (!row || !row->is_object()) continue;
    const json::object& fields = row->get_object();
    if (const json::value* step = fields.if_contains("step"); step != nullptr && step->is_int64())
      branch.last_step = std::max(branch.last_step, step->get_int64());
    if (const json::value* time = fields.if_contains("time"); time != nullptr && time->is_number())
      branch.time = time->to_number<double>();
    const json::value* reward = fields.if_contains("rollout/raw_reward");
    if (reward != nullptr && reward->is_number()) branch.reward = reward->to_number<double>();
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
  const json::value* flags = run.if_contains("flags");
  const json::value* save =
      flags != nullptr && flags->is_object() ? flags->get_object().if_contains("--save") : nullptr;
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
    for (const ListedRun& run : runs) seen.insert(text_of(run.main.flags.if_contains(name)));
  for (ListedRun& run : runs) {
    for (const auto& [name, seen] : values) {
      if (seen.size() > 1 && run.main.flags.contains(name))
        run.main.differences.push_back(name + " " + text_of(run.main.flags.if_contains(name)));
    }
  }
}

json::object to_json(const ListedBranch& branch) {
  json::object object{
      {"branch", branch.name},         {"folder", branch.folder.string()},
      {"state", branch.state},         {"why", branch.why},
      {"is_active", branch.is_active}, {"last_step", branch.last_step},
      {"num_steps", branch.num_steps}, {"reward", nullptr},
      {"time", branch.time},           {"checkpoints", json::value_from(branch.checkpoints)},
      {"flags", branch.flags},         {"differences", json::value_from(branch.differences)}};
  if (branch.reward) object["reward"] = *branch.reward;
  if (!branch.parent.empty()) {
    object["parent"] = branch.parent;
    object["from_step"] = branch.from;
  }
  json::array children;
  for (const ListedBranch& child : branch.children) children.push_back(to_json(child));
  object["branches"] = std::move(children);
  return object;
}

std::string ago(double seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 36 * 3600) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} d", seconds / 86400);
}

/// "1a2b3c4d after 7"; without the step where nobody knows it.
std::string name_below(const ListedBranch& branch) {
  return branch.from < 0 ? branch.name : fmt::format("{} after {}", branch.name, branch.from);
}

/// A setting that differs between runs, beside the others.
struct Column {
  std::string flag;
  int width = 0;
};

constexpr int kFixedWidth = 12 + 11 + 9 + 7 + 4;  // state, step, reward, age and spaces
constexpr int kWidestColumn = 20;
constexpr int kWidestName = 40;

/// Columns that fit beside names of `name_width`.
std::vector<Column> columns_of(const std::vector<ListedRun>& runs, int width, int name_width) {
  std::map<std::string, std::pair<int64_t, int>, std::less<>> flags;  // runs that set it, width
  for (const ListedRun& run : runs) {
    for (const std::string& difference : run.main.differences) {
      const std::string flag = difference.substr(0, difference.find(' '));
      const std::string value = text_of(run.main.flags.if_contains(flag));
      auto& [count, widest] = flags[flag];
      ++count;
      widest = std::max({widest, display_width(value), display_width(flag) - 2});
    }
  }
  std::vector<std::pair<int64_t, Column>> found;
  for (const auto& [flag, seen] : flags)
    if (runs.size() > 1 && flag.starts_with("--") && seen.second <= kWidestColumn)
      found.push_back({seen.first, {.flag = flag, .width = seen.second}});
  std::ranges::stable_sort(found, std::greater<>(), [](const auto& each) { return each.first; });
  std::vector<Column> columns;
  int room = width - name_width - kFixedWidth;
  for (auto& [count, column] : found) {
    if (column.width + 1 > room) continue;
    room -= column.width + 1;
    columns.push_back(std::move(column));
  }
  return columns;
}

class Table {
 public:
  Table(const std::vector<ListedRun>& runs, int width, bool has_color, double now)
      : width_(width), color_(has_color), now_(now) {
    int longest = 12;
    for (const ListedRun& run : runs) longest = std::max(longest, display_width(run.name));
    const int room = std::max(12, width - kFixedWidth);
    columns_ = columns_of(runs, width, std::min({longest, kWidestName, room}));
    name_width_ = room;
    for (const Column& column : columns_) name_width_ -= column.width + 1;
  }

  void add_header() {
    std::string line = fmt::format("{:<{}} {:<12} {:>11} {:>9} {:>7}", "RUN", name_width(), "STATE",
                                   "STEP", "REWARD", "AGO");
    for (const Column& column : columns_)
      line += fmt::format(" {:<{}}", column.flag.substr(2), column.width);
    text_ += color_ ? "\033[1m" + line + "\033[0m\n" : line + "\n";
  }

  /// `first`: before its name; `other`: before lines below it.
  void add(const ListedBranch& branch, const std::string& name, const std::string& first,
           const std::string& other) {
    const std::string label = first + name + (branch.is_active && has_branches_ ? " *" : "");
    const std::string step = branch.num_steps > 0
                                 ? fmt::format("{}/{}", branch.last_step + 1, branch.num_steps)
                                 : fmt::format("{}", branch.last_step + 1);
    const std::string reward = branch.reward && std::isfinite(*branch.reward)
                                   ? fmt::format("{:.4g}", *branch.reward)
                                   : "-";
    const int width = name_width();
    const std::string shown = clip_to_width(label, width);
    text_ += shown +
             std::string(static_cast<std::size_t>(std::max(0, width - display_width(shown))), ' ');
    text_ += " " + colored(branch.state) +
             fmt::format(" {:>11} {:>9} {:>7}", step, reward, ago(now_ - branch.time));
    if (branch.name == kMainBranch) add_columns(branch);
    text_ += "\n";
    if (!branch.why.empty())
      text_ += clip_to_width(other + "    why: " + branch.why, width_) + "\n";
    add_differences(branch, other);
    for (std::size_t i = 0; i < branch.children.size(); ++i) {
      const bool is_last = i + 1 == branch.children.size();
      const ListedBranch& child = branch.children[i];
      add(child, name_below(child), other + (is_last ? "`- " : "|- "),
          other + (is_last ? "   " : "|  "));
    }
  }

  void begin(const ListedRun& run) { has_branches_ = !run.main.children.empty(); }
  std::string text() const { return text_; }

  void add_lost(const std::string& branch) {
    if (branch.empty()) return;
    const std::string line = fmt::format(
        "    its active branch {} is deleted; --load SAVE/branches/main goes on", branch);
    text_ += clip_to_width(line, width_) + "\n";
  }

 private:
  int name_width() const { return name_width_; }

  void add_columns(const ListedBranch& branch) {
    for (const Column& column : columns_) {
      const json::value* value = branch.flags.if_contains(column.flag);
      const std::string text = value == nullptr ? "-" : text_of(value);
      text_ += " " + text +
               std::string(
                   static_cast<std::size_t>(std::max(0, column.width - display_width(text))), ' ');
    }
  }

  bool has_column(const std::string& difference) const {
    const std::string flag = difference.substr(0, difference.find(' '));
    return std::ranges::find(columns_, flag, &Column::flag) != columns_.end();
  }

  std::string colored(const std::string& state) const {
    const std::string padded = fmt::format("{:<12}", clip_to_width(state, 12));
    if (!color_) return padded;
    const int color = state == "running" || state == "finished" ? 32
                      : state == "died" || state == "failed"    ? 31
                                                                : 33;
    return fmt::format("\033[{}m{}\033[0m", color, padded);
  }

  /// As many as fit two lines; how many more there are.
  void add_differences(const ListedBranch& branch, const std::string& other) {
    constexpr int kMostLines = 2;
    const std::string begin = other + (branch.children.empty() ? "    " : "|   ");
    std::string line;
    int lines = 0;
    std::vector<std::string> changes = branch.differences;
    if (branch.name == kMainBranch)
      std::erase_if(changes, [this](const std::string& change) { return has_column(change); });
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const std::string& change = changes[i];
      const std::string more = fmt::format(", and {} more", changes.size() - i);
      const auto room = [&] {  // the last line says how many more there are
        return width_ - display_width(begin) - (lines + 1 == kMostLines ? 14 : 0);
      };
      if (!line.empty() && display_width(line) + 2 + display_width(change) > room()) {
        if (++lines == kMostLines) {
          line += more;
          break;
        }
        text_ += begin + line + "\n";
        line.clear();
      }
      line += (line.empty() ? "" : ", ") + clip_to_width(change, room());
    }
    if (!line.empty()) text_ += begin + line + "\n";
  }

  int width_;
  int name_width_ = 12;
  bool color_;
  double now_;
  std::vector<Column> columns_;
  bool has_branches_ = false;  // the run that is written
  std::string text_;
};

}  // namespace

std::vector<ListedRun> list_runs(const fs::path& folder) {
  std::vector<fs::path> found;
  find_runs(folder, kDeepest, found);
  std::vector<ListedRun> runs;
  for (const fs::path& root : found) {
    std::string name = root == folder ? fs::absolute(root).lexically_normal().filename().string()
                                      : root.lexically_relative(folder).string();
    if (name.empty())
      name = fs::absolute(root).lexically_normal().parent_path().filename().string();
    runs.push_back(read_run(root, name));
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

std::string table_of_runs(const std::vector<ListedRun>& runs, int width, bool has_color,
                          double now) {
  Table table(runs, width, has_color, now);
  table.add_header();
  for (const ListedRun& run : runs) {
    table.begin(run);
    table.add(run.main, run.name, "", "");
    table.add_lost(run.lost_branch);
  }
  return table.text();
}

}  // namespace slime::report
