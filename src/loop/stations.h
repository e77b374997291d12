#pragma once

/// The stations of a run, and the one function that builds them from the user's flags.
///
/// A loop (loop/sync_loop.cpp) is a short function over these; they know nothing of one another and
/// meet as the records of core/sample.h. Members stand in the order of their lifetimes: each uses
/// only those above it.

#include <memory>
#include <string>

#include "cluster/placement.h"
#include "cluster/run_identity.h"
#include "config/parse_flags.h"
#include "core/clock.h"
#include "core/interrupt.h"
#include "loop/checkpoints.h"
#include "loop/evaluator.h"
#include "loop/group_source.h"
#include "loop/run_data.h"
#include "loop/start_point.h"
#include "loop/topology.h"
#include "plugin/plugins.h"
#include "report/recorder.h"
#include "report/run_folder.h"
#include "report/run_memory.h"
#include "report/timeline.h"
#include "report/view_process.h"
#include "setup/run_schedule.h"

namespace slime::loop {

/// Where the run's processes are, and which run they are of. References outlive the run.
struct Launch {
  cluster::RunIdentity identity;  // of the run, and of these trainers
  cluster::Hosts& hosts;
  const Clock& clock;
};

/// What a run leaves to be read.
struct Records {
  report::RunFolder folder;
  report::Timeline timeline;
  report::RunMemory memory;
  std::unique_ptr<report::Recorder> recorder;  // once all that it describes is there
  std::unique_ptr<report::ViewProcess> view;   // --view; it tells the recorder
};

/// Which steps the run has, and how far it is.
struct Course {
  setup::RunSchedule schedule;
  StartPoint start;
  int64_t last_step = -1;  // that has ended
};

/// A record without behaviour: what a loop needs, by name. None is absent when it is built: forms of a
/// run are siblings behind one interface.
struct Stations {
  Stations(config::RunConfig flags, report::RunFolder run_folder,
           const cluster::RunIdentity& identity, cluster::Hosts& hosts, const Clock& clock);
  ~Stations();
  Stations(const Stations&) = delete;
  Stations& operator=(const Stations&) = delete;

  const config::RunConfig config;
  Launch launch;
  Records records;
  Course course;
  RunData data;
  Topology topology;
  std::unique_ptr<plugin::Plugins> plugins;
  std::unique_ptr<GroupSource> source;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<Checkpoints> checkpoints;
  std::unique_ptr<core::Interrupt>
      interrupt;  // the last: before it a signal simply ends the process

  report::Recorder& recorder() const { return *records.recorder; }
};

struct CarriedState;  // loop/carried_state.h

/// `flags` are complete and valid; their warnings are shown first. Everything that can be wrong
/// with flags, data, template and model directory is found here, before any token is generated.
/// `carried` of stations before these become theirs; what they say of the run stays. Throws
/// ConfigError, and cluster::WorkerFailure with the carried back in their place. `hosts` and
/// `clock` outlive the stations.
std::unique_ptr<Stations> build_stations(config::ParsedFlags flags, CarriedState& carried,
                                         cluster::Hosts& hosts, const Clock& clock);

}  // namespace slime::loop
