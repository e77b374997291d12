#pragma once

/// The tail of APRIL: steps of a rollout whose responses have the lengths of a log-normal
/// distribution, in the synchronous form, with over-sampling and partial rollouts, and in the
/// synchronous form of twice the size. The rollout and the engine are those of a run; rewards are
/// made up.

#include <string>
#include <vector>

#include "bench/draft_options.h"
#include "bench/made_up_model.h"
#include "engine/engine.h"
#include "train/trainer.h"

namespace slime::bench {

struct AprilOptions {
  std::string name;
  ShapeOptions shape;
  std::string device = "cuda";
  std::vector<std::string> forms{"sync", "partial", "sync-double"};
  int64_t prompts = 64;  // of a step
  int64_t samples = 8;   // of each prompt
  int64_t prompt_tokens = 256;
  int64_t over_sampling = 2;  // times `prompts`, in the partial form
  // Of the lengths, in tokens.
  double median_length = 800;
  double sigma = 1.0;
  int64_t longest = 8192;
  double length_scale = 1;  // all lengths times this, the longest too
  int64_t steps = 15;       // that count, of each form
  /// Before them, of the partial form, until as much is handed back as is taken up; the others warm
  /// up with one short step.
  int64_t warm_up = 2;
  int64_t first_step = 0;  // of the synchronous forms' prompts: their steps can be measured apart
  int64_t max_running_requests = 256;
  int64_t concurrency = 512;  // samples in the engine, running or waiting
  double kv_cache_gb = 0;     // 10^9 bytes; 0: what is free
  bool trains = false;        // each step's groups are trained on
  /// Without training too: after each step what was handed back has its keys and values computed
  /// again.
  bool updates_weights = false;
  int64_t micro_batch_tokens = 16384;
  DraftOptions drafts;
};

/// Of the response of a sample. A function of its ordinal alone, so that every form and every part
/// of a measurement draws the same.
int64_t april_length(const AprilOptions& options, int64_t sample_ordinal);

/// Of any response.
int64_t longest_april_length(const AprilOptions& options);

/// Throws ConfigError, with the forms there are, for another one than those of run_april().
void check_april_form(const AprilOptions& options, const std::string& form);

struct AprilRun {
  // Of the steps that count.
  int64_t steps = 0;
  int64_t groups = 0;
  int64_t kept_tokens = 0;
  double seconds = 0;           // of all of it
  double training_seconds = 0;  // of that
  int64_t prompt_tokens = 0;    // of requests that ended; what was sampled before is prompt
  int64_t cached_tokens = 0;    // of those, found in the prefix tree
  double mean_running = 0;      // requests in the engine's steps, over time
  DraftCounts drafts;
  /// Tokens of all steps, those before included: generated = kept + discarded + pending.
  struct Ledger {
    int64_t generated = 0;
    int64_t kept = 0;       // in groups that the steps gave
    int64_t discarded = 0;  // sampled and thrown away
    int64_t pending = 0;    // in groups that the next step would go on with
    bool adds_up() const { return generated == kept + discarded + pending; }
  } ledger;

  double groups_per_second() const { return static_cast<double>(groups) / seconds; }
};

/// `form`: sync, partial, partial-early (a group begins as one ends), partial-late (the same, but the
/// engine's places are free again group by group) or sync-double; ConfigError otherwise. `trainer`: of
/// the engine's network, or null.
AprilRun run_april(engine::Engine& engine, int64_t vocab_size, train::Trainer* trainer,
                   const AprilOptions& options, const std::string& form);

}  // namespace slime::bench
