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
  run->text = std::move(survivors.text);
  run->dataset = std::exchange(survivors.dataset, {});
  run->engine_threads = survivors.engine_threads;
  run->published = std::move(survivors.published);
  run->engine_workers = std::move(survivors.engines);
  return run;
}

void take_survivors(std::unique_ptr<Stations> run, Survivors& survivors) {
  if (run->engine_workers) {
    run->engine_workers->tell_by(nullptr);
    run->engine_workers->hear_by(nullptr);
    run->engine_workers->call_behind_writing(nullptr);
  }
  survivors.engine_threads = run->engine_threads;
  survivors.engines = std::move(run->engine_workers);
  // Who reads what survives ends first, in the order in which stations do.
  run->checkpoints.reset();
  run->beside.reset();
  run->ahead.reset();
  run->function.reset();
  run->others.reset();
  run->rollout.reset();
  run->plugins.reset();
  run->door.reset();
  run->recorder.reset();
  run->own_engines.reset();
  run->trainers.reset();
  run->prompts.reset();
  survivors.published = std::move(run->published);
  survivors.text = std::move(run->text);
  survivors.dataset = std::move(run->dataset);
  survivors.folder = std::move(run->folder);
}

}  // namespace slime::loop
