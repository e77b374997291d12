#pragma once

/// A run from its beginning to its end, over the deaths of its trainers.
///
/// A trainer rank that dies, hangs or says that it cannot go on takes all of them with it: what they
/// hold together is lost. With --use-fault-tolerance they are started again inside the run, in a new
/// epoch: at its newest checkpoint, or where it began while there is none. What follows is what
/// follows a resume of the whole run (loop/start_point.h): the ledger rolls back, prompts that were
/// trained since are given out again, rows of metrics and rollouts are made again. Only engines in
/// workers, the data set and the folder's lock stay (loop/carried_state.h).

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cluster/placement.h"
#include "config/parse_flags.h"
#include "core/clock.h"

namespace slime::loop {

struct Stations;

/// How often trainers were lost, and what for, since the run last got further than ever before.
class Losses {
 public:
  explicit Losses(int64_t max_restarts) : max_restarts_(max_restarts) {}

  /// They were lost behind step `last_step`, the last that ended (-1: none did). False: they are not
  /// to be started again, because they were `max_restarts` times without progress.
  bool add(const std::string& why, int64_t last_step);
  int64_t num_restarts() const { return num_restarts_; }  // without progress
  /// Before the next start: longer each time, without progress.
  std::chrono::milliseconds pause() const;
  /// "trainer ranks were started again 3 times ...", and each loss.
  std::string history() const;

 private:
  int64_t max_restarts_;
  int64_t num_restarts_ = 0;
  int64_t furthest_ = -1;
  std::string reasons_;
};

/// A loop over the steps of a run (loop/station_steps.h); returns the exit code.
using Loop = std::function<int(Stations&)>;

/// Builds the stations and goes through `loop`, which is that of the flags, complete and valid ones. Returns the exit code: 0, or Interrupt::kExitCode after Ctrl-C. Throws ConfigError, and
/// cluster::WorkerFailure when trainers are lost for good. `token`: of the run
/// (cluster/run_identity.h). `hosts` and `clock` outlive the call.
int run_to_the_end(const config::ParsedFlags& flags, cluster::Hosts& hosts,
                   const std::string& token, const Clock& clock, const Loop& loop);
int run_to_the_end(const config::ParsedFlags& flags, cluster::Hosts& hosts,
                   const std::string& token, const Clock& clock);
/// The same on this host alone, with a token of its own.
int run_on_this_host(const config::ParsedFlags& flags, const Clock& clock, const Loop& loop);
int run_on_this_host(const config::ParsedFlags& flags, const Clock& clock);

}  // namespace slime::loop
