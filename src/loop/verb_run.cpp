#include "loop/verb_run.h"

#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "cluster/workers.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "loop/run_networks.h"
#include "loop/station_steps.h"
#include "loop/step_abandoned.h"
#include "loop/verb_door.h"
#include "loop/verb_loop.h"
#include "loop/verb_queue.h"
#include "report/rollout_metrics.h"
#include "train/checkpoint_directory.h"

namespace slime::loop {
namespace {

constexpr const char* kInterrupted = "the run was interrupted; what was trained is saved";

VerbRules rules_of(const Stations& run) {
  const config::RunConfig& config = run.config;
  VerbRules rules{.trains = trains(config),
                  .generates = config.generates(),
                  .is_stream = config.train_async,
                  .shares_weights = config.generates() && config.shares_weights(),
                  .can_go_back = !config.train_async && run.data.origin->can_go_back(),
                  .evaluates = run.course.schedule.eval_interval.has_value()};
  const bool waits =
      config.train_async && config.bounds_age() && !config::has_users_rollout(config);
  if (waits) rules.max_lag = config.max_staleness;
  return rules;
}

/// New lines of a file of metrics, one record of all of them.
class NewMetrics {
 public:
  explicit NewMetrics(std::filesystem::path path) : path_(std::move(path)) {}

  json::object operator()() {
    json::object all;
    std::ifstream file(path_);
    file.seekg(position_);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      position_ += static_cast<std::streamoff>(line.size()) + 1;
      const std::optional<json::value> row = try_parse_json(line);
      if (!row || !row->is_object()) continue;
      for (const auto& each : row->get_object()) all[each.key()] = each.value();
    }
    return all;
  }

 private:
  const std::filesystem::path path_;
  std::streamoff position_ = 0;
};

VerbHooks hooks_of(Stations& run) {
  return {.tell = [&run](const std::string& line) { run.recorder().message(line); },
          .new_metrics = [reader = std::make_shared<NewMetrics>(
                              run.records.folder.metrics())] { return (*reader)(); },
          .reward_of = [&config = run.config](const report::Collected& collected) -> json::value {
            if (config.trains_on_rows() || collected.groups.empty() ||
                collected.groups.front().samples.front().reward.is_null())
              return {};
            return report::mean_reward(collected.groups, config.reward_key);
          },
          .checkpoint_of =
              [&run](int64_t step) {
                return std::filesystem::absolute(run.records.folder.checkpoints() /
                                                 train::checkpoint_name(step))
                    .lexically_normal()
                    .string();
              }};
}

json::object state_of(const Stations& run, const VerbLoop& loop) {
  const VerbState state = loop.state();
  const setup::RunSchedule& schedule = run.course.schedule;
  return {{"run_id", run.course.start.run_id},
          {"run_dir", std::filesystem::absolute(run.records.folder.root()).string()},
          {"first_step", schedule.first_step},
          {"num_steps", schedule.num_steps},
          {"next_step", state.next},
          {"done_step", state.done},
          {"saved_step", state.saved},
          {"weight_version", state.version},
          {"steps_behind", state.behind},
          {"in_hand", state.in_hand},
          {"is_async", run.config.train_async.peek()}};
}

/// The loop with its door open.
void serve(Stations& run, StationSteps& steps, VerbQueue& queue,
           const std::filesystem::path& folder) {
  VerbLoop loop(steps, run.course.schedule, rules_of(run), queue, hooks_of(run));
  const VerbDoor door(folder, queue,
                      {.state = [&run, &loop] { return state_of(run, loop); },
                       .config = [&run] { return config::flags_for_users(run.config); },
                       .rollout = [&loop](int64_t step) { return loop.rollout(step); },
                       .reward_key = run.config.reward_key});
  const auto end = [&queue](const std::string& why) { queue.end({.message = why}); };
  try {
    loop.run();
  } catch (const StepAbandoned&) {
    end(kInterrupted);
    throw;
  } catch (const std::exception& error) {
    end(error.what());
    throw;
  }
  end(run.interrupt->requested() ? kInterrupted : "the run is closed");
}

}  // namespace

int run_by_verbs(Stations& run, const std::filesystem::path& folder) {
  VerbQueue queue;
  try {
    return run_steps(run, [&](StationSteps& steps) { serve(run, steps, queue, folder); });
  } catch (const cluster::WorkerFailure& failure) {
    throw std::runtime_error(fmt::format(
        "{}\nStart the script again: it goes on behind the last checkpoint", failure.what()));
  }
}

}  // namespace slime::loop
