#include "loop/survivors.h"

#include <utility>

namespace slime::loop {

std::unique_ptr<Stations> stations_of(config::RunConfig config, Survivors& survivors,
                                      cluster::Hosts& hosts, const Clock& clock) {
  report::RunFolder folder =
      survivors.folder ? std::move(*survivors.folder) : report::RunFolder(config);
  survivors.folder.reset();
  auto run = std::make_unique<Stations>(std::move(config), std::move(folder), survivors.identity,
                                        hosts, clock);
  run->data.text = std::move(survivors.text);
  run->topology.engine_threads = survivors.engine_threads;
  run->topology.published = std::move(survivors.published);
  run->topology.engines = std::move(survivors.engines);
  return run;
}

void take_survivors(std::unique_ptr<Stations> run, Survivors& survivors) {
  Topology& topology = run->topology;
  if (topology.engines) {
    topology.engines->tell_by(nullptr);
    topology.engines->hear_by(nullptr);
    topology.engines->call_behind_writing(nullptr);
    if (topology.engines->outlive_trainers()) survivors.engines = std::move(topology.engines);
  }
  survivors.engine_threads = topology.engine_threads;
  // Who reads what survives ends first, in the order in which stations do.
  run->checkpoints.reset();
  run->evaluator.reset();
  run->source.reset();
  run->plugins.reset();
  run->records.recorder.reset();
  topology.engines.reset();
  topology.trainers.reset();
  survivors.published = std::move(topology.published);
  if (run->data.origin) survivors.rows = run->data.origin->give_rows();
  survivors.text = std::move(run->data.text);
  survivors.folder = std::move(run->records.folder);
}

}  // namespace slime::loop
