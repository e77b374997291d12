#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "core/safe_text.h"
#include "report/run_list.h"
#include "report/terminal.h"

namespace slime::report {
namespace {

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

constexpr int kRewardWidth = 10;
constexpr int kFixedWidth = 12 + 11 + kRewardWidth + 7 + 4;  // state, step, reward, age and spaces
constexpr int kWidestColumn = 20;
constexpr int kWidestName = 40;

/// Columns that fit beside names of `name_width`.
std::vector<Column> columns_of(const std::vector<ListedRun>& runs, int width, int name_width) {
  std::map<std::string, std::pair<int64_t, int>, std::less<>> flags;  // runs that set it, width
  for (const ListedRun& run : runs) {
    for (const std::string& difference : run.main.differences) {
      const std::string flag = difference.substr(0, difference.find(' '));
      const std::string value = setting_text(run.main.flags.if_contains(flag));
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

/// Of the names of a branch's children and theirs, with the marks before and behind them.
int label_width(const ListedBranch& branch, int depth) {
  int widest = 0;
  for (const ListedBranch& child : branch.children) {
    const int own = 3 * (depth + 1) + display_width(name_below(child)) + 2;
    widest = std::max({widest, own, label_width(child, depth + 1)});
  }
  return widest;
}

/// "0.4812"; of a run without rewards its loss, "loss 0.123"; "-".
std::string reward_text(const ListedBranch& branch) {
  if (branch.reward && std::isfinite(*branch.reward)) return fmt::format("{:.4g}", *branch.reward);
  if (branch.reward || !branch.loss || !std::isfinite(*branch.loss)) return "-";
  const std::string text = fmt::format("loss {:.3g}", *branch.loss);
  return text.size() <= kRewardWidth ? text : fmt::format("loss {:.0e}", *branch.loss);
}

class Table {
 public:
  Table(const std::vector<ListedRun>& runs, int width, bool has_color, double now)
      : width_(width), color_(has_color), now_(now) {
    int longest = 12;
    for (const ListedRun& run : runs)
      longest = std::max({longest, display_width(run.name), label_width(run.main, 0)});
    const int room = std::max(12, width - kFixedWidth);
    columns_ = columns_of(runs, width, std::min({longest, kWidestName, room}));
    name_width_ = room;
    for (const Column& column : columns_) name_width_ -= column.width + 1;
  }

  void add_header() {
    std::string line = fmt::format("{:<{}} {:<12} {:>11} {:>{}} {:>7}", "RUN", name_width(),
                                   "STATE", "STEP", "REWARD", kRewardWidth, "AGO");
    for (const Column& column : columns_)
      line += fmt::format(" {:<{}}", column.flag.substr(2), column.width);
    text_ += color_ ? "\033[1m" + line + "\033[0m\n" : line + "\n";
  }

  /// `first`: before its name; `other`: before lines below it.
  void add(const ListedBranch& branch, const std::string& name, const std::string& first,
           const std::string& other) {
    const std::string label =
        first + safe_text(name) + (branch.is_active && has_branches_ ? " *" : "");
    const std::string step = branch.num_steps > 0
                                 ? fmt::format("{}/{}", branch.last_step + 1, branch.num_steps)
                                 : fmt::format("{}", branch.last_step + 1);
    const int width = name_width();
    const std::string shown = clip_to_width(label, width);
    text_ += shown +
             std::string(static_cast<std::size_t>(std::max(0, width - display_width(shown))), ' ');
    text_ += " " + colored(branch.state) +
             fmt::format(" {:>11} {:>{}} {:>7}", step, reward_text(branch), kRewardWidth,
                         ago(now_ - branch.time));
    if (branch.name == kMainBranch) add_columns(branch);
    text_ += "\n";
    if (!branch.why.empty())
      text_ += clip_to_width(other + "    why: " + safe_text(branch.why), width_) + "\n";
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
      const std::string text = value == nullptr ? "-" : safe_text(setting_text(value));
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
      const std::string change = safe_text(changes[i]);
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
