#include "loop/carried_state.h"

#include <utility>

namespace slime::loop {

std::unique_ptr<Stations> stations_of(config::RunConfig config, CarriedState& carried,
                                      cluster::Hosts& hosts, const Clock& clock) {
  const bool begins = !carried.folder;
  report::RunFolder folder = begins ? report::RunFolder(config) : std::move(*carried.folder);
  carried.folder.reset();
  if (begins) {
    const auto note = [&](const std::string& line) { carried.branch_notes.push_back(line); };
    carried.branch = choose_branch(config, folder, note);
    follow_choice(carried.branch, folder, note);
  }
  auto run = std::make_unique<Stations>(std::move(config), std::move(folder), carried.identity,
                                        hosts, clock);
  run->data.text = std::move(carried.text);
  run->topology.engine_threads = carried.engine_threads;
  run->topology.published = std::move(carried.published);
  run->topology.session = std::move(carried.session);
  run->topology.engines = std::move(carried.engines);
  run->topology.shared = carried.shared;
  run->records.view = std::move(carried.view);
  return run;
}

void take_carried_state(std::unique_ptr<Stations> run, CarriedState& carried) {
  Topology& topology = run->topology;
  if (topology.engines) {
    topology.engines->tell_by(nullptr);
    topology.engines->hear_by(nullptr);
    topology.engines->call_behind_writing(nullptr);
    if (topology.engines->outlive_trainers()) carried.engines = std::move(topology.engines);
  }
  carried.engine_threads = topology.engine_threads;
  // Who reads what survives ends first, in the order in which stations do.
  run->checkpoints.reset();
  run->evaluator.reset();
  run->source.reset();
  run->plugins.reset();
  if (run->records.view) run->records.view->tell_by(nullptr);
  carried.view = std::move(run->records.view);
  run->records.recorder.reset();
  topology.engines.reset();
  topology.trainers.reset();
  carried.session = std::move(topology.session);
  carried.published = std::move(topology.published);
  if (run->data.origin) carried.rows = run->data.origin->give_rows();
  carried.text = std::move(run->data.text);
  carried.folder = std::move(run->records.folder);
}

}  // namespace slime::loop
