#include "loop/worker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "cluster/worker_link.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"
#include "loop/engine_role.h"
#include "loop/networks.h"
#include "loop/rank_tasks.h"
#include "loop/train_config.h"
#include "loop/trainer_functions.h"
#include "loop/trainer_role.h"
#include "model/placement.h"
#include "train/checkpoint.h"

namespace slime::loop {
namespace {

constexpr int kDataDescriptor = 4;  // where cluster/local_workers.h puts it

void say(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

config::RunConfig config_of(const std::vector<std::string>& arguments) {
  config::ParsedFlags flags = config::parse_flags(arguments);
  config::complete_and_validate(flags);
  return std::move(flags.config);
}

/// A worker that has become a rank: its network, and its roles.
class Worker final {
 public:
  Worker(const RankStart& start, cluster::WorkerLink& link)
      : link_(link),
        config_(config_of(start.arguments)),
        functions_(config_, start.plugin_logs, start.rank) {
    at::set_num_threads(start.num_threads);
    std::optional<train::Checkpoint> checkpoint;
    if (!start.checkpoint.empty())
      checkpoint = train::read_checkpoint(start.checkpoint, start.iteration);
    const auto precision = model::precision_on(config_.device, config_.dtype);  // opens the GPU
    link_.answer("");
    const comm::ParallelLayout layout = layout_of(config_);
    mesh_ = connect_ranks(config_.device != "cpu",
                          {.rank = start.rank,
                           .layout = layout,
                           .port = start.port,
                           .connect_timeout = kRankConnectTimeout,
                           .timeout = std::chrono::milliseconds(start.collective_milliseconds),
                           .on_begin =
                               [&link](int64_t number, const char* what) {
                                 link.set_progress({.num_collectives = number + 1, .doing = what});
                               }},
                          nullptr);
    network_ = model::load_network(checkpoint ? start.checkpoint : config_.hf_checkpoint, precision,
                                   *mesh_);
    train::OtherNetworks others = load_other_networks(config_, precision, *mesh_);
    link_.answer("");
    train::TrainConfig config = make_train_config(config_, start.num_rollouts);
    config.frozen = frozen_names(config_, network_->weights(), *mesh_);
    functions_.set_in(config, start.first_rollout);
    trainer_.emplace(*mesh_, *network_, config, std::move(others), clock_);
    if (checkpoint && start.loads_optimizer)
      train::restore_trainer(*checkpoint, trainer_->trainer(), say);
    say(fmt::format("rank {} of {} is ready", start.rank, layout.world_size()));
  }

  ~Worker() {
    if (server_.joinable()) ::shutdown(kDataDescriptor, SHUT_RDWR);  // the controller may be alive
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void carry_out(const TrainerTask& task) {
    if (const auto report = trainer_->carry_out(task))
      link_.answer(train::to_frame(report->log_probs));
    if (task.kind != RankTask::kRelease) return;
    if (config_.device != "cpu") kernels::opened_gpu().release_unused_memory();
    link_.answer("");
  }

  /// An engine over the weights that this rank trains, served beside it.
  void start_engine(const EngineStart& start) {
    engine_.emplace(start, config_, *network_, clock_);
    server_ = std::jthread([this] {
      try {
        const int64_t requests = engine_->serve(kDataDescriptor);
        say(fmt::format("its engine drew for {} requests", requests));
      } catch (const std::exception& error) {  // the controller notices that the engine is lost
        say(error.what());
      }
    });
    link_.answer("");
    say("its engine is ready");
  }

 private:
  cluster::WorkerLink& link_;
  const SystemClock clock_;
  config::RunConfig config_;
  TrainerFunctions functions_;
  std::unique_ptr<comm::Mesh> mesh_;
  std::unique_ptr<model::Network> network_;
  std::optional<TrainerRole> trainer_;
  std::optional<EngineRole> engine_;  // where each rank has one
  std::jthread server_;               // of the engine
};

/// Until the controller closes the engine's connection.
void serve_engine(cluster::WorkerLink& link, const EngineStart& start) {
  at::set_num_threads(start.num_threads);
  const config::RunConfig config = config_of(start.arguments);
  const SystemClock clock;
  EngineRole role(start, config, clock);
  link.answer(to_text(role.ready()));
  link.set_progress({.num_collectives = 0, .doing = "serving requests"});
  say("the engine is ready");
  role.serve(kDataDescriptor);
}

void serve(cluster::WorkerLink& link, std::optional<Worker>& worker) {
  while (const auto task = link.next_task()) {
    if (worker && is_engine_start(*task)) {
      worker->start_engine(engine_start_from(*task));
    } else if (worker) {
      worker->carry_out(trainer_task_from(*task));
    } else if (is_engine_start(*task)) {
      serve_engine(link, engine_start_from(*task));
    } else {
      worker.emplace(rank_start_from(*task), link);
    }
  }
}

}  // namespace

int run_worker(int control_descriptor) {
  cluster::WorkerLink link(control_descriptor);
  // Outside of the try block: when something fails it stays, because its destructor might wait for
  // collectives that are under way.
  std::optional<Worker> worker;
  try {
    serve(link, worker);
    return 0;
  } catch (const comm::GroupError& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kPeers, error.what());
  } catch (const std::exception& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kOwn, error.what());
  }
  link.wait_for_end();
}

}  // namespace slime::loop
