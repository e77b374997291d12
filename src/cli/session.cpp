#include "cli/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/options.h"
#include "core/error.h"
#include "core/own_command.h"
#include "report/run_lock.h"
#include "roles/session_folder.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> living(const roles::SessionRecord& record) {
  std::vector<int64_t> processes;
  std::ranges::copy_if(record.processes, std::back_inserter(processes), roles::is_running);
  return processes;
}

/// Null: a trainer has it.
std::unique_ptr<report::RunLock> try_lock(const fs::path& folder) {
  try {
    return std::make_unique<report::RunLock>(folder, "session");
  } catch (const ConfigError&) {
    return nullptr;
  }
}

int list() {
  int num_sessions = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(roles::sessions_folder())) {
    const std::optional<roles::SessionRecord> record = roles::read_session(entry.path());
    if (!record) continue;
    const std::vector<int64_t> processes = living(*record);
    if (processes.empty()) continue;
    ++num_sessions;
    const bool has_trainer = try_lock(entry.path()) == nullptr;
    fmt::print("{}: {} engines (processes {}), {}\n", record->id, processes.size(),
               fmt::join(processes, ", "), has_trainer ? "in use" : "waiting for a trainer");
  }
  if (num_sessions == 0) fmt::print("no engines wait\n");
  return 0;
}

int end(const std::string& id, double seconds) {
  const fs::path folder = roles::session_folder(id);
  const std::optional<roles::SessionRecord> record = roles::read_session(folder);
  if (!record || record->id != id)
    throw ConfigError(
        fmt::format("session {}: there is none; {} shows them", id, own_command("session list")));
  const report::RunLock lock(folder, "session");
  const std::size_t num_engines = living(*record).size();
  const int num_killed = roles::end_session(folder, *record, seconds);
  fmt::print("session {}: {} engines have ended{}\n", id, num_engines,
             num_killed > 0 ? fmt::format(", {} of them killed", num_killed) : std::string());
  return 0;
}

}  // namespace

int session(std::span<const std::string> arguments) {
  CLI::App app{
      "Engines that outlive their trainers (slime train --rollout-session-id ID): which there are, "
      "and their end.",
      "slime session"};
  app.require_subcommand(1);
  app.add_subcommand("list", "sessions with engines that live");
  CLI::App* const ends = app.add_subcommand("end", "end the engines of a session");
  std::string id;
  double seconds = 10;
  ends->add_option("id", id, "--rollout-session-id of the run")->required();
  ends->add_option("--timeout", seconds, "seconds until engines that have not ended are killed")
      ->check(finite_range(0, 100'000));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  return ends->parsed() ? end(id, seconds) : list();
}

}  // namespace slime::cli
