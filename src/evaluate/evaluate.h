#pragma once

/// Evaluation of a model without a run: the sets, rewards and numbers of a run's evaluation
/// (loop/evaluation.h), with an engine alone.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/parse_flags.h"
#include "core/json.h"
#include "evaluate/result.h"

namespace slime::evaluate {

struct EvaluateOptions {
  std::filesystem::path adapter;  // for the model; empty: none
  std::string output;             // a file of samples; empty: none is written
  /// Bytes for keys and values, asked when the weights are where they stay.
  std::function<int64_t()> kv_cache_bytes;
  std::function<void(const std::string& sentence)> say;
  /// Prompts that are done, of how many, and tokens of this process so far.
  std::function<void(int64_t num_done, int64_t num_prompts, int64_t num_tokens)> on_progress;
};

struct EvaluationResult {
  std::vector<SetResult> sets;
  json::object settings;  // what decides the samples
  int64_t num_prompts = 0;
  int64_t num_kept = 0;          // that an earlier process drew
  bool is_broken_off = false;    // by Ctrl-C
  bool has_only_failed = false;  // samples, of all sets
};

/// `flags` are validated. Throws ConfigError.
EvaluationResult evaluate(const config::ParsedFlags& flags, const EvaluateOptions& options);

}  // namespace slime::evaluate
