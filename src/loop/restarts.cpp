#include "loop/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "cluster/local_process.h"
#include "cluster/workers.h"
#include "core/safe_text.h"
#include "loop/carried_state.h"
#include "loop/station_steps.h"
#include "loop/stations.h"
#include "setup/run_devices.h"

namespace slime::loop {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{250};
constexpr int64_t kMostDoublings = 6;  // 16 seconds

/// What is above the display, or before there is one.
void tell(const Stations* run, const std::string& line) {
  if (run != nullptr && run->records.recorder) return run->recorder().message(line);
  std::fputs((safe_text(line) + "\n").c_str(), stderr);
}

}  // namespace

bool Losses::add(const std::string& why, int64_t last_step) {
  if (last_step > furthest_) {
    furthest_ = last_step;
    num_restarts_ = 0;
    reasons_.clear();
  }
  reasons_ += (reasons_.empty() ? "" : "\n") + why;
  if (num_restarts_ == max_restarts_) return false;
  ++num_restarts_;
  return true;
}

milliseconds Losses::pause() const {
  if (num_restarts_ <= 1) return milliseconds(0);
  return kFirstPause * (int64_t{1} << std::min(num_restarts_ - 2, kMostDoublings));
}

std::string Losses::history() const {
  return fmt::format(
      "trainer ranks were started again {} times, and no further step was trained (--max-restarts "
      "{}):\n{}",
      num_restarts_, max_restarts_, reasons_);
}

int run_to_the_end(const config::ParsedFlags& flags, cluster::Hosts& hosts,
                   const std::string& token, const Clock& clock) {
  return run_to_the_end(flags, hosts, token, clock, run_loop);
}

int run_to_the_end(const config::ParsedFlags& flags, cluster::Hosts& hosts,
                   const std::string& token, const Clock& clock, const Loop& loop) {
  CarriedState carried{.identity = {.token = token}};
  Losses losses(flags.config.max_restarts);
  for (;;) {
    std::unique_ptr<Stations> run;
    std::string why;
    try {
      run = build_stations(flags, carried, hosts, clock);
      return loop(*run);
    } catch (const cluster::WorkerFailure& failure) {
      const bool is_interrupted = run && run->interrupt && run->interrupt->requested();
      if (!flags.config.use_fault_tolerance || is_interrupted) throw;
      why = failure.what();
    }
    if (!losses.add(why, run ? run->course.last_step : -1))
      throw cluster::WorkerFailure(losses.history());
    ++carried.identity.epoch;
    tell(run.get(),
         fmt::format("trainer ranks start again, in epoch {}: {}", carried.identity.epoch, why));
    if (run) take_carried_state(std::move(run), carried);
    std::this_thread::sleep_for(losses.pause());
  }
}

int run_on_this_host(const config::ParsedFlags& flags, const Clock& clock) {
  return run_on_this_host(flags, clock, run_loop);
}

int run_on_this_host(const config::ParsedFlags& flags, const Clock& clock, const Loop& loop) {
  setup::check_devices(flags.config);
  cluster::LocalLauncher launcher;
  cluster::Hosts hosts{.launcher = launcher, .placement = setup::place_workers(flags.config, 1, 0)};
  return run_to_the_end(flags, hosts, cluster::make_run_token(), clock, loop);
}

}  // namespace slime::loop
