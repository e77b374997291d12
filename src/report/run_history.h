#pragma once

/// Files of earlier processes in a run's folder, and their removal for --overwrite.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "report/run_folder.h"

namespace slime::report {

struct RunHistory {
  bool has_metrics = false;
  bool has_ledger = false;           // with at least one record
  int64_t num_rollouts = 0;          // files of RUN_DIR/rollouts
  bool has_saved = false;            // RUN_DIR/latest is there, wherever it leads
  std::vector<int64_t> checkpoints;  // iterations in the folder that the run saves to
  json::object run;                  // RUN_DIR/run.json; empty when there is none of our form

  /// Whether RUN_DIR has anything of a step but that its prompts were given out. Checkpoints may lie elsewhere, and be
  /// another run's.
  bool has_steps() const { return has_metrics || num_rollouts > 0 || has_saved; }
  /// "metrics, 12 rollout files, a ledger, checkpoints up to iter_0000011".
  std::string describe() const;
};

RunHistory read_history(const RunFolder& folder);

/// The run that wrote a checkpoint, or a run.json: what tells a folder's own checkpoints from those
/// of others, also after the folder was moved. Empty when it does not say.
std::string run_id_of(const json::object& run);
std::string make_run_id();

/// Removes what runs write there, checkpoints included, and nothing else. Logs of other ranks stay:
/// those of this run may have begun, and they replace the old ones. When the process dies on the
/// way, what is left is a history without the checkpoints that were removed.
void remove_history(const RunFolder& folder);

}  // namespace slime::report
