#pragma once

/// State that outlives lost trainers: it goes from the stations that had them to those built in
/// their place (loop/restarts.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/dataset.h"
#include "cluster/placement.h"
#include "cluster/run_identity.h"
#include "loop/branches.h"
#include "loop/start_point.h"
#include "loop/stations.h"
#include "model/network.h"
#include "report/run_folder.h"
#include "report/view_process.h"
#include "roles/engines.h"
#include "roles/kept_engines.h"

namespace slime::loop {

struct CarriedState {
  cluster::RunIdentity identity;
  std::optional<StartPoint> first;          // where the run began; none: it has not begun
  std::optional<report::RunFolder> folder;  // locked
  BranchChoice branch;                      // of the command
  std::vector<std::string> branch_notes;    // what it had to say
  std::unique_ptr<setup::ModelText> text;
  std::optional<buffer::Dataset> rows;  // reads `text`
  int64_t engine_threads = 0;
  std::unique_ptr<model::Network> published;
  std::unique_ptr<roles::KeptEngines> session;
  std::unique_ptr<roles::Engines> engines;  // those in workers; they read `published`
  std::unique_ptr<report::ViewProcess> view;
  SharedBase* shared = nullptr;  // of several runs; null: the run is alone
};

/// Stations that have what others have left, or of a run that has not begun, and nothing else yet.
std::unique_ptr<Stations> stations_of(config::RunConfig config, CarriedState& carried,
                                      cluster::Hosts& hosts, const Clock& clock);

/// Ends the stations, whose trainers are lost, but for what outlives them.
void take_carried_state(std::unique_ptr<Stations> run, CarriedState& carried);

}  // namespace slime::loop
