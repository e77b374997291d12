#include "config/flag_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/flag_rows.h"
#include "config/overloaded.h"
#include "core/nearest_name.h"

namespace slime::config {
namespace {

using enum FlagGroup;

void add(std::vector<FlagRow>& all, FlagGroup group, std::vector<FlagRow> rows) {
  for (FlagRow& row : rows) {
    row.group = group;
    all.push_back(std::move(row));
  }
}

const std::vector<FlagRow>& rows() {
  static const std::vector<FlagRow> kRows = [] {
    std::vector<FlagRow> all;
    add(all, kModel, model_flags());
    add(all, kData, data_flags());
    add(all, kData, queue_flags());
    add(all, kRollout, rollout_flags());
    add(all, kAsync, async_flags());
    add(all, kEngine, engine_flags());
    add(all, kEngine, sglang_flags());
    add(all, kEngine, engine_worker_flags());
    add(all, kReward, reward_flags());
    add(all, kAlgorithm, algorithm_flags());
    add(all, kOptimizer, optimizer_flags());
    add(all, kOptimizer, adapter_flags());
    add(all, kBatch, batch_flags());
    add(all, kEval, evaluation_flags());
    add(all, kOutput, output_flags());
    add(all, kShape, shape_flags());
    add(all, kParallel, parallel_flags());
    return all;
  }();
  return kRows;
}

}  // namespace

RunConfig users_defaults() {
  RunConfig config;
  config.device = "auto";
  return config;
}

std::span<const FlagRow> flag_table() { return rows(); }

std::string_view group_title(FlagGroup group) {
  switch (group) {
    case kModel:
      return "Model and checkpoints";
    case kData:
      return "Data";
    case kRollout:
      return "Rollout";
    case kAsync:
      return "Generation beside training (slime train-async)";
    case kEngine:
      return "Engine";
    case kReward:
      return "Reward";
    case kAlgorithm:
      return "Algorithm";
    case kOptimizer:
      return "Optimizer";
    case kBatch:
      return "Batches";
    case kEval:
      return "Evaluation";
    case kOutput:
      return "What is written";
    case kShape:
      return "Model shape";
    case kParallel:
      return "Parallel sizes";
  }
  return "";
}

const FlagRow* find_flag(std::string_view name) {
  const auto row = std::ranges::find(rows(), name, &FlagRow::name);
  return row == rows().end() ? nullptr : &*row;
}

std::string_view reason_of(const FlagRow& flag, const RunConfig& config) {
  for (const ConditionalReason& reason : flag.reasons)
    if (reason.where.holds(config)) return reason.why;
  return flag.meaning;
}

std::optional<std::string> nearest_flag(std::string_view name) {
  std::vector<std::string_view> names;
  for (const FlagRow& flag : rows()) names.push_back(flag.name);
  const auto nearest = nearest_name(name, names);
  return nearest ? std::optional(std::string(*nearest)) : std::nullopt;
}

std::vector<std::string_view> Alias::targets() const {
  if (!same_as.empty()) return {same_as};
  std::vector<std::string_view> flags;
  for (const auto& [word, meanings] : words)
    for (const FlagAndWord& each : meanings) flags.push_back(each.flag);
  return flags;
}

FlagMember Alias::value_member() const {
  return value_like.index() != 0 || same_as.empty() ? value_like : find_flag(same_as)->member;
}

std::string_view value_word(const FlagRow& flag) {
  if (!flag.alias.words.empty()) return flag.alias.is_switch() ? "" : "WORD";
  return std::visit(
      Overloaded{
          [&](std::monostate) -> std::string_view {
            return flag.takes_values == 0 ? "" : flag.takes_values == 1 ? "VALUE" : "VALUES...";
          },
          [](Flag<bool> RunConfig::*) -> std::string_view { return ""; },
          [](Flag<int64_t> RunConfig::*) -> std::string_view { return "N"; },
          [](Flag<std::optional<int64_t>> RunConfig::*) -> std::string_view { return "N"; },
          [](Flag<double> RunConfig::*) -> std::string_view { return "X"; },
          [](Flag<std::optional<double>> RunConfig::*) -> std::string_view { return "X"; },
          [](Flag<std::string> RunConfig::*) -> std::string_view { return "WORD"; },
          [](Flag<std::vector<std::string>> RunConfig::*) -> std::string_view {
            return "WORDS...";
          },
          [](Flag<std::vector<int64_t>> RunConfig::*) -> std::string_view { return "N..."; }},
      flag.alias.same_as.empty() ? flag.member : flag.alias.value_member());
}

std::string default_text(const FlagRow& flag) {
  static const RunConfig kDefaults = users_defaults();
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); },
                 [](Flag<bool> RunConfig::*) { return std::string(); },
                 [](Flag<int64_t> RunConfig::*member) {
                   return std::to_string((kDefaults.*member).peek());
                 },
                 [](Flag<double> RunConfig::*member) {
                   return fmt::format("{}", (kDefaults.*member).peek());
                 },
                 [](Flag<std::string> RunConfig::*member) { return (kDefaults.*member).peek(); },
                 [](auto RunConfig::*) { return std::string(); }},
      flag.member);
}

}  // namespace slime::config
