#include "loop/adapter_runs.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "cluster/local_process.h"
#include "cluster/placement.h"
#include "config/adapter_words.h"
#include "estimate/model_shape.h"
#include "loop/carried_state.h"
#include "loop/shared_base.h"
#include "loop/station_steps.h"
#include "loop/stations.h"
#include "roles/run_adapters.h"
#include "setup/run_devices.h"

namespace slime::loop {
namespace {

/// How the runs ended.
struct Ends {
  std::mutex mutex;
  int exit_code = 0;               // guarded by mutex
  std::exception_ptr first_error;  // guarded by mutex
};

/// The loop of one run, on a thread of its own, with which its stations end.
void run_to_its_end(std::unique_ptr<Stations> run, Ends& ends) {
  at::init_num_threads();  // as on the main thread
  try {
    int exit_code = 0;
    config::in_words_of_adapter(run->config.adapter_name, [&] { exit_code = run_loop(*run); });
    const std::lock_guard lock(ends.mutex);
    ends.exit_code = std::max(ends.exit_code, exit_code);
  } catch (const std::exception& error) {
    run->recorder().message(fmt::format("this run ends, the others go on: {}", error.what()));
    const std::lock_guard lock(ends.mutex);
    if (!ends.first_error) ends.first_error = std::current_exception();
  }
}

/// One after another, and all before the first step of any.
std::vector<std::unique_ptr<Stations>> build_runs(const std::vector<config::ParsedFlags>& runs,
                                                  SharedBase& base, cluster::Hosts& hosts,
                                                  const Clock& clock) {
  std::vector<std::unique_ptr<Stations>> stations;
  for (const config::ParsedFlags& flags : runs) {
    CarriedState carried{.identity = {.token = cluster::make_run_token()}, .shared = &base};
    config::in_words_of_adapter(flags.config.adapter_name, [&] {
      stations.push_back(build_stations(flags, carried, hosts, clock));
    });
  }
  return stations;
}

/// Numbers of the adapters of all runs.
int64_t count_adapter_elements(const std::vector<config::ParsedFlags>& runs) {
  int64_t all = 0;
  for (const config::ParsedFlags& flags : runs) {
    config::in_words_of_adapter(flags.config.adapter_name, [&] {
      const model::ModelConfig model = model::read_model_config(flags.config.hf_checkpoint.get());
      const model::AdapterForm form = roles::adapter_form(flags.config, model);
      all += estimate::shape_of(model, &form).adapters();
    });
  }
  return all;
}

}  // namespace

int run_adapters(const std::vector<config::ParsedFlags>& runs, const Clock& clock) {
  const config::RunConfig& first = runs.front().config;
  setup::check_devices(first);
  cluster::LocalLauncher launcher;
  cluster::Hosts hosts{.launcher = launcher, .placement = setup::place_workers(first, 1, 0)};
  SharedBase base(static_cast<int64_t>(runs.size()), count_adapter_elements(runs));
  Ends ends;
  {
    std::vector<std::unique_ptr<Stations>> stations = build_runs(runs, base, hosts, clock);
    std::vector<std::jthread> loops;
    for (std::unique_ptr<Stations>& run : stations)
      loops.emplace_back(run_to_its_end, std::move(run), std::ref(ends));
  }
  if (ends.first_error) std::rethrow_exception(ends.first_error);
  return ends.exit_code;
}

}  // namespace slime::loop
