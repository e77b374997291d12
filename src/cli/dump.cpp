#include "cli/dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <vector>

#include "cli/options.h"
#include "cli/standard_output.h"
#include "core/error.h"
#include "core/json.h"
#include "core/own_command.h"
#include "core/safe_text.h"
#include "core/shell_word.h"
#include "plugin/rollout_dump.h"
#include "report/branch_files.h"
#include "report/rollout_archive.h"
#include "report/rollout_files.h"
#include "report/run_files.h"
#include "report/sample_text.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// Where the samples of a rollout may lie, the whole ones first.
std::vector<fs::path> places_of(const fs::path& run_dir, const json::object& run, int64_t rollout) {
  std::vector<fs::path> places;
  if (const std::string pattern = report::text_flag(run, "--save-debug-rollout-data");
      !pattern.empty())
    places.push_back(report::numbered_path(pattern, rollout));
  places.push_back(run_dir / "rollouts" / fmt::format("step_{:06}.jsonl", rollout));
  places.push_back(run_dir / "skipped" / fmt::format("{}.jsonl", rollout));
  return places;
}

std::vector<int64_t> rollouts_there(const fs::path& run_dir) {
  std::set<int64_t> steps;
  for (const report::RolloutFile& file : report::rollout_files(run_dir / "rollouts"))
    steps.insert(file.step);
  return {steps.begin(), steps.end()};
}

/// "0-5, 8".
std::string ranges_of(const std::vector<int64_t>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size();) {
    std::size_t last = i;
    while (last + 1 < steps.size() && steps[last + 1] == steps[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", steps[i]) : fmt::format("{}-{}", steps[i], steps[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

fs::path find_rollout(const fs::path& run_dir, int64_t rollout) {
  std::vector<std::string> problems;
  const json::object run = report::read_run_record(run_dir / "run.json", problems);
  for (const fs::path& place : places_of(run_dir, run, rollout))
    if (fs::is_regular_file(place)) return place;
  throw ConfigError(fmt::format(
      "{}: there are no samples of rollout {}; there are those of: {} (--rollout-files-gb, "
      "--rollout-queue-online-gc and --no-save-rollouts leave some out)",
      run_dir.string(), rollout, ranges_of(rollouts_there(run_dir))));
}

/// The lines as they are; on a terminal with what it would obey escaped, which means the same in JSON.
void print_lines(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (::isatty(STDOUT_FILENO) == 0) {
    std::cout << file.rdbuf();
    return;
  }
  for (std::string line; std::getline(file, line);) std::cout << safe_json(line) << "\n";
}

fs::path lines_of(const fs::path& path) {
  const json::object descriptor = report::archive_descriptor(path);
  return descriptor.empty() ? path : report::data_of_archive(path, descriptor);
}

/// Prompts, responses and rewards.
void print_text(const fs::path& lines, const fs::path& run_dir) {
  std::vector<std::string> problems;
  const json::object run = report::read_run_record(run_dir / "run.json", problems);
  const std::string reward_key = report::text_flag(run, "--reward-key");
  std::string text;
  for (const Group& group : report::read_samples(lines))
    text += report::plain_text(group, reward_key);
  write_out(text);
}

void write_file(const fs::path& lines, const fs::path& out, int64_t rollout) {
  const std::vector<Group> groups = report::read_samples(lines);
  if (report::has_archive_name(out)) {
    report::write_archive(out, rollout, groups);
  } else if (out.extension() == ".pt") {
    const fs::path between =
        fs::path(out).replace_filename(fmt::format("{}.{}.jsonl", out.stem().string(), rollout));
    report::write_samples(between, groups);
    try {
      plugin::convert_rollout_dump(between, out);
    } catch (...) {
      fs::remove(between);
      throw;
    }
    fs::remove(between);
  } else if (out.extension() == ".jsonl" || out.extension() == ".json") {
    report::write_samples(out, groups);
  } else {
    throw ConfigError(
        fmt::format("--out {}: should end in .jsonl (JSON lines), .pt (the original's form) or "
                    ".straw.json (an archive)",
                    out.string()));
  }
  int64_t num_samples = 0;
  for (const Group& group : groups) num_samples += static_cast<int64_t>(group.samples.size());
  fmt::print("{}: {} samples of {} groups, rollout {}\n", out.string(), num_samples, groups.size(),
             rollout);
}

}  // namespace

int dump(std::span<const std::string> arguments) {
  fs::path run_dir;
  fs::path out;
  std::string branch;
  std::optional<int64_t> rollout;
  bool as_text = false;
  CLI::App app(
      "Prints the samples of a rollout of a run, JSON lines: tokens, masks, rewards, log-probs; "
      "with --text prompts, responses and rewards to read. Without ROLLOUT it says which are "
      "there.\n\n  slime dump runs/first --text\n  slime dump runs/first 40 | head -1",
      "slime dump");
  app.add_option("RUN_DIR", run_dir, "a run directory, as in runs/NAME, or a branch of one")
      ->required();
  app.add_option("ROLLOUT", rollout, "the rollout step, from 0")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  app.add_flag("--text", as_text,
               "prompts, responses and rewards in plain lines, without tokens; of the newest "
               "rollout, if none is named");
  app.add_option("--branch", branch, "a branch of the run, as `slime runs` lists it");
  app.add_option(
      "-o,--out", out,
      "a file instead: FILE.jsonl, FILE.pt (as the original writes and reads them; needs "
      "python3), or FILE.straw.json; --load-debug-rollout-data reads all of them");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (as_text && !out.empty())
    throw ConfigError("--text: prints what people read; -o writes a file for programs");
  if (!fs::is_regular_file(run_dir / "run.json"))
    throw ConfigError(
        fmt::format("{}: is no run directory (it has no run.json)", run_dir.string()));
  if (!branch.empty() && branch != report::kMainBranch) {
    const fs::path place = run_dir / "branches" / branch;
    if (branch.find('/') != std::string::npos || !fs::is_directory(place))
      throw ConfigError(fmt::format("--branch {}: {} has no such branch; {} lists them", branch,
                                    run_dir.string(),
                                    own_command("runs " + shell_word(run_dir.string()))));
    run_dir = place;
  }
  const std::vector<int64_t> there = rollout ? std::vector<int64_t>() : rollouts_there(run_dir);
  if (as_text && !there.empty()) rollout = there.back();
  if (!rollout) {
    fmt::print("{}: rollouts {}\n", run_dir.string(), ranges_of(there));
    return 0;
  }
  const fs::path lines = lines_of(find_rollout(run_dir, *rollout));
  if (as_text) {
    print_text(lines, run_dir);
  } else if (!out.empty()) {
    write_file(lines, out, *rollout);
  } else {
    print_lines(lines);
  }
  return 0;
}

}  // namespace slime::cli
