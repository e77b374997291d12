#include "cli/ledger.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "buffer/ledger_audit.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// What the newest checkpoint stores; nothing where there is none.
std::optional<int64_t> checkpoint_position(const fs::path& run_dir) {
  const fs::path path = run_dir / "latest" / "run.json";
  if (!fs::exists(path)) return std::nullopt;
  const json::value state = read_json_file(path);
  if (!state.is_object()) throw ConfigError(path.string() + ": should be an object");
  const FieldReader fields(state.get_object(), path.string() + ": ");
  return fields.required().fields("run")->required().integer("ledger", 0);
}

json::object to_json(const buffer::LedgerSummary& prompts) {
  return {{"given_out", prompts.dispatched}, {"trained", prompts.trained},
          {"skipped", prompts.skipped},      {"filtered", prompts.filtered},
          {"failed", prompts.failed},        {"pending", prompts.in_flight}};
}

json::object to_json(const buffer::LedgerBalance& at) {
  return {{"step", at.totals.step},
          {"position", at.position},
          {"prompts", to_json(at.prompts)},
          {"tokens",
           {{"generated", at.totals.generated},
            {"trained", at.tokens.trained},
            {"skipped", at.tokens.skipped},
            {"filtered", at.tokens.filtered},
            {"failed", at.tokens.failed},
            {"discarded", at.discarded_tokens()},
            {"pending", at.totals.pending}}},
          {"prompts_without_tokens", at.tokens.num_not_counted}};
}

json::object to_json(const buffer::LedgerAudit& audit) {
  json::object object{{"adds_up", audit.num_problems == 0},
                      {"num_problems", audit.num_problems},
                      {"problems", json::array(audit.problems.begin(), audit.problems.end())},
                      {"checkpoint", nullptr},
                      {"checkpoints", audit.num_checkpoints},
                      {"records", audit.num_records},
                      {"records_behind_checkpoint", audit.num_behind},
                      {"rolled_back", audit.num_rolled_back},
                      {"restarts", audit.num_rollbacks},
                      {"collected_to", audit.collected_to},
                      {"torn_bytes", audit.torn_bytes},
                      {"prompts_at_end", to_json(audit.prompts)}};
  if (audit.checkpoint) object["checkpoint"] = to_json(*audit.checkpoint);
  return object;
}

json::object to_json(const buffer::LedgerStep& step) {
  const buffer::LedgerRecord& record = step.record;
  json::object object{{"line", step.line},
                      {"position", step.position},
                      {"fate", to_string(record.outcome)},
                      {"counts", step.counts}};
  if (record.step >= 0) object["step"] = record.step;
  if (!record.reason.empty()) object["reason"] = record.reason;
  if (record.tokens) object["tokens"] = *record.tokens;
  if (record.discarded > 0) object["discarded"] = record.discarded;
  return object;
}

void print_balance(const buffer::LedgerBalance& at) {
  const buffer::LedgerSummary& prompts = at.prompts;
  const buffer::LedgerTokens& tokens = at.tokens;
  const auto row = [](std::string_view name, int64_t num_prompts, int64_t num_tokens) {
    fmt::print("  {:<20} {:>12} {:>16}\n", name, num_prompts, num_tokens);
  };
  fmt::print("  {:<20} {:>12} {:>16}\n", "", "prompts", "tokens");
  row("given out, generated", prompts.dispatched, at.totals.generated);
  row("  trained", prompts.trained, tokens.trained);
  row("  skipped", prompts.skipped, tokens.skipped);
  row("  filtered", prompts.filtered, tokens.filtered);
  row("  failed", prompts.failed, tokens.failed);
  row("  pending", prompts.in_flight, at.totals.pending);
  fmt::print("  {:<20} {:>12} {:>16}\n", "  discarded", "", at.discarded_tokens());
  if (tokens.num_not_counted > 0) {
    fmt::print("  {} prompts ended before tokens were counted\n", tokens.num_not_counted);
  }
}

void print_table(const fs::path& path, const buffer::LedgerAudit& audit) {
  fmt::print("ledger      {}: {} records, {} restarts, {} records rolled back\n", path.string(),
             audit.num_records, audit.num_rollbacks, audit.num_rolled_back);
  if (audit.collected_to > 0) {
    fmt::print("collected   what lies before byte {}: the first line has its sums\n",
               audit.collected_to);
  }
  if (audit.torn_bytes > 0) {
    fmt::print("torn end    {} bytes at byte {}: the next start cuts them off\n", audit.torn_bytes,
               audit.torn_begin);
  }
  if (audit.checkpoint) {
    const buffer::LedgerBalance& at = *audit.checkpoint;
    const std::string which = at.totals.step < 0 ? "what the run took over"
                                                 : fmt::format("after step {}", at.totals.step);
    fmt::print("checkpoint  {}, at byte {}; {} checked\n\n", which, at.position,
               audit.num_checkpoints);
    print_balance(at);
  } else {
    fmt::print("checkpoint  none with totals: tokens cannot be summed\n");
  }
  const buffer::LedgerSummary before =
      audit.checkpoint ? audit.checkpoint->prompts : buffer::LedgerSummary{};
  const buffer::LedgerSummary& now = audit.prompts;
  if (audit.num_behind > 0) {
    fmt::print(
        "\nbehind it   {} records, which a restart rolls back: {} prompts given out, {} trained, "
        "{} skipped, {} filtered, {} failed\n",
        audit.num_behind, now.dispatched - before.dispatched, now.trained - before.trained,
        now.skipped - before.skipped, now.filtered - before.filtered, now.failed - before.failed);
  }
}

void print_path(int64_t ordinal, const std::vector<buffer::LedgerStep>& steps) {
  fmt::print("prompt {}\n  {:>10} {:>12}\n", ordinal, "line", "byte");
  for (const buffer::LedgerStep& step : steps) {
    const buffer::LedgerRecord& record = step.record;
    std::string what(to_string(record.outcome));
    if (record.step >= 0) what += fmt::format(" at step {}", record.step);
    if (!record.reason.empty()) what += fmt::format(" ({})", record.reason);
    if (record.tokens) what += fmt::format(", {} tokens", *record.tokens);
    if (record.discarded > 0) what += fmt::format(", {} discarded", record.discarded);
    if (!step.counts) what += "  [rolled back]";
    fmt::print("  {:>10} {:>12}  {}\n", step.line, step.position, what);
  }
}

/// Standard output for people; with problems it ends in them.
void print_verdict(const buffer::LedgerAudit& audit) {
  if (audit.num_problems == 0) {
    fmt::print("\n{}\n", audit.checkpoint ? "everything adds up" : "no prompt has two outcomes");
    return;
  }
  fmt::print("\nDOES NOT ADD UP\n");
  for (const std::string& problem : audit.problems) fmt::print("  {}\n", problem);
  if (const auto shown = static_cast<int64_t>(audit.problems.size()); audit.num_problems > shown)
    fmt::print("  and {} more\n", audit.num_problems - shown);
}

}  // namespace

int ledger(std::span<const std::string> arguments) {
  fs::path run_dir;
  std::optional<int64_t> ordinal;
  bool as_json = false;
  CLI::App app(
      "Proves from the ledger of a run that no prompt and no token was lost, or tells what became "
      "of one prompt. Exit code 1: something does not add up.",
      "slime ledger");
  app.add_option("RUN_DIR", run_dir, "a run directory, as in runs/NAME")->required();
  app.add_option("--ordinal", ordinal, "the path of this prompt: every record of it");
  app.add_flag("--json", as_json, "one JSON object");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  const fs::path path = run_dir / "ledger.jsonl";
  if (!fs::is_regular_file(path)) {
    throw ConfigError(
        fmt::format("{}: there is no ledger; RUN_DIR is a directory in which slime train writes",
                    path.string()));
  }
  const buffer::LedgerAudit audit = buffer::audit_ledger(path, checkpoint_position(run_dir));
  json::object object = to_json(audit);
  if (ordinal) {
    const std::vector<buffer::LedgerStep> steps = buffer::path_of(path, *ordinal);
    if (steps.empty())
      throw ConfigError(fmt::format("--ordinal {}: the run never gave it out{}", *ordinal,
                                    audit.collected_to > 0 ? ", or its records were collected "
                                                             "(--rollout-queue-online-gc)"
                                                           : ""));
    json::array records;
    for (const buffer::LedgerStep& step : steps) records.push_back(to_json(step));
    object["ordinal"] = *ordinal;
    object["path"] = std::move(records);
    if (!as_json) print_path(*ordinal, steps);
  } else if (!as_json) {
    print_table(path, audit);
  }
  if (as_json) {
    fmt::print("{}\n", json_text(object));
  } else {
    print_verdict(audit);
  }
  return audit.num_problems == 0 ? 0 : 1;
}

}  // namespace slime::cli
