#pragma once

/// What rank 0 tells the other ranks to do: the first letter of a task (cluster/worker_frames.h).

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::loop {

enum class RankTask : char {
  kStart = 's',      // RankStart as JSON; the answer, once the networks are loaded, is empty
  kTrain = 't',      // train::BatchShare; the answer: log-probs of its samples
  kPublished = 'p',  // the engine got the new weights; no answer
  kSave = 'c',       // rank 0 saves a checkpoint: send it your parts; no answer
};

/// All a process needs to become a rank of a run: the user's words, and what rank 0 found out with
/// them.
struct RankStart {
  std::vector<std::string> arguments;  // of slime train
  int rank = 0;
  int size = 1;
  int port = 0;                         // of the rendezvous
  int64_t collective_milliseconds = 0;  // deadline of each collective
  int64_t num_rollouts = 0;             // planned length of the run
  int num_threads = 0;
  std::string checkpoint;        // directory to continue from; empty: none
  int64_t iteration = 0;         // of the checkpoint
  bool loads_optimizer = false;  // of the checkpoint
};

json::object to_json(const RankStart& start);
RankStart rank_start_from(const json::value& value);

}  // namespace slime::loop
