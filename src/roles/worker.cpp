#include "roles/worker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "cluster/worker_link.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/safe_text.h"
#include "kernels/gpu/gpu.h"
#include "model/placement.h"
#include "plugin/trainer_functions.h"
#include "report/run_memory.h"
#include "roles/engine_group.h"
#include "roles/engine_ranks.h"
#include "roles/engine_role.h"
#include "roles/networks.h"
#include "roles/rank_memory.h"
#include "roles/rank_tasks.h"
#include "roles/run_adapters.h"
#include "roles/run_start.h"
#include "roles/trainer_role.h"
#include "setup/train_config.h"
#include "train/checkpoint.h"
#include "train/keep_freed_memory.h"

namespace slime::roles {
namespace {

constexpr int kDataDescriptor = 4;  // where cluster/local_process.h puts it

void say(const std::string& line) {
  fmt::print(stderr, "{}\n", safe_text(line));
  std::fflush(stderr);
}

/// A worker that has become a rank: its network, and its roles. One class because they are one process,
/// which becomes all of this task by task.
class Worker final {
 public:
  Worker(RankStart start, const cluster::RunIdentity& identity, cluster::WorkerLink& link)
      : link_(link),
        identity_(identity),
        start_(std::move(start)),
        memory_(start_.config.device != "cpu", start_.config.hf_checkpoint, start_.checkpoints),
        functions_(start_.config, start_.plugin_logs, start_.rank) {
    at::set_num_threads(start_.num_threads);
    kernels::choose_platform(start_.config.device);
    if (start_.config.device == "cpu") train::keep_freed_memory();
    if (start_.last_checkpoint >= 0) memory_.set_last_checkpoint(start_.last_checkpoint);
    if (!start_.checkpoint.empty())
      checkpoint_ = train::read_checkpoint(start_.checkpoint, start_.iteration);
    if (start_.rank == 0 && layout_.world_size() > 1) rendezvous_.emplace(start_.address);
    link_.answer(start_.rank == 0 ? fmt::format("{}", rendezvous_ ? rendezvous_->port() : 0) : "");
  }

  ~Worker() {
    if (server_.joinable()) ::shutdown(kDataDescriptor, SHUT_RDWR);  // the controller may be alive
    if (follower_.joinable()) {
      follower_.request_stop();
      group_->stop_following();
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void carry_out(const TrainerTask& task) {
    if (task.kind == RankTask::kMeet) return become_trainer(task);
    check(trainer_.has_value(), "ranks meet before they train");
    if (task.kind == RankTask::kBeginPhase) return memory_.begin_phase();
    if (task.kind == RankTask::kMemory) return link_.answer(to_text(memory_.measured()));
    memory_.explain_shortage(estimate::Phase::kTrain, [&] {
      trainer_->carry_out(task, [this](std::string_view answer) { link_.answer(answer); });
    });
    if (task.kind == RankTask::kSave) memory_.set_last_checkpoint(task.save.iteration);
    if (task.kind != RankTask::kRelease) return;
    memory_.release_unused();
    link_.answer("");
  }

  /// Its part of the engines over the ranks that train: an engine, which is served while the rank
  /// trains; a rank of an engine that another rank leads; or nothing.
  void start_engine(const EngineStart& start) {
    check(trainer_.has_value(), "ranks train before they generate");
    const bool is_on_each = start_.config.has_engine_on_each_rank();
    if (is_on_each && own_weights_) trainer_->reshard_to(*own_weights_);
    if (!is_on_each && !layout_.holds_model_whole()) trainer_->gather_to(own_weights_.get());
    // Codes of what is trained, also where files have others. All ranks do this together.
    if (start_.config.has_codes()) trainer_->bring_weights();
    if (!is_on_each && start_.rank > 0) return link_.answer("");
    if (group_ && !group_->leads()) return follow();
    memory_.explain_shortage(estimate::Phase::kGenerate, [&] {
      engine_.emplace(start, identity_, *engine_weights(), group_ ? &*group_ : nullptr, clock_);
    });
    server_ = std::jthread([this] {
      try {
        const int64_t requests = engine_->serve(kDataDescriptor);
        say(fmt::format("its engine drew for {} requests", requests));
      } catch (const std::exception& error) {  // the controller notices that the engine is lost
        say(error.what());
      }
    });
    link_.answer(to_text(engine_->ready()));
    say("its engine is ready");
  }

 private:
  /// Its part of the engine's steps, beside what this rank trains.
  void follow() {
    follower_ = std::jthread([this](const std::stop_token& stop) {
      // Otherwise the controller would learn of it from the rank that leads alone, who has lost a
      // follower and does not know why.
      const auto fail = [&](cluster::FailureCause cause, const std::exception& error) {
        say(error.what());
        if (!stop.stop_requested()) link_.report_failure(cause, error.what());
      };
      try {
        group_->follow(*own_weights_, engine_precision(start_.config));
      } catch (const comm::GroupError& error) {
        fail(cluster::FailureCause::kPeers, error);
      } catch (const std::exception& error) {
        fail(cluster::FailureCause::kOwn, error);
      }
    });
    link_.answer("");
    say("it follows in an engine");
  }

  void become_trainer(const TrainerTask& task) {
    const config::RunConfig& flags = start_.config;
    const model::Precision precision = this->precision();
    meet(task);
    memory_.explain_shortage(estimate::Phase::kTrain, [&] { load_networks(precision); });
    train::TrainConfig config =
        setup::make_train_config(flags, start_.num_rollouts, network_->config().has_experts());
    config.frozen = frozen_names(flags, network_->trained(), *mesh_);
    functions_.set_in(config, start_.first_rollout);
    plan_memory(config, precision, /*is_taken=*/false);  // what does not fit is explained
    memory_.explain_shortage(estimate::Phase::kTrain, [&] {
      trainer_.emplace(*mesh_, *network_, config,
                       load_other_networks(flags, *network_, precision, *mesh_), clock_);
    });
    RankReady ready;
    if (checkpoint_) {
      train::restore_trainer(*checkpoint_, trainer_->trainer(), start_.left_out,
                             [&ready](const std::string& line) {
                               say(line);
                               ready.notes.push_back(line);
                             });
    }
    plan_memory(config, precision, /*is_taken=*/true);
    ready.memory = memory_.plan().to_json();
    say(fmt::format("rank {} of {} is ready", start_.rank, layout_.world_size()));
    link_.answer(to_text(ready));
  }

  /// Whether the rank leads an engine or follows in one.
  bool has_engine() const {
    const config::RunConfig& flags = start_.config;
    if (!flags.has_engines_over_ranks()) return false;
    return flags.has_engine_on_each_rank() || start_.rank == 0;
  }
  /// Where engines hold the model otherwise than the ranks do, theirs has a network of its own. Of codes it gets
  /// what is trained before the first request, as later.
  void load_networks(const model::Precision& precision) {
    const model::DraftLayers drafts = trained_draft_layers(start_.config);
    network_ = model::load_network(weights_directory(), precision, *mesh_, drafts);
    add_run_adapters(start_.config, *network_, start_.adapter, *mesh_);
    if (has_engine() && (group_ || !layout_.holds_model_whole())) {
      const comm::Mesh& mesh = group_ ? group_->mesh() : comm::Mesh::single();
      model::Precision own = precision;
      own.matrices = engine_matrices(start_.config);
      own_weights_ = model::load_network(weights_directory(), own, mesh, drafts);
      add_run_adapters(start_.config, *own_weights_, start_.adapter, mesh);
    }
  }
  model::Network* engine_weights() const {
    if (!has_engine()) return nullptr;
    return own_weights_ ? own_weights_.get() : network_.get();
  }

  void plan_memory(const train::TrainConfig& config, const model::Precision& precision,
                   bool is_taken) {
    const estimate::MemoryNeeds needs = rank_memory_needs(
        start_.config, *network_, engine_weights(), precision, config, start_.longest_prompt);
    memory_.plan(start_.config, needs,
                 needs.whole_weights + (is_taken ? needs.train.resident() + needs.train.gradients
                                                 : needs.train.weights));
  }

  const std::string& weights_directory() const { return start_.weights; }
  /// Opens the GPU.
  model::Precision precision() const {
    return model::precision_on(start_.config.device, start_.config.dtype);
  }

  void meet(const TrainerTask& task) {
    if (layout_.world_size() == 1) return;
    own_mesh_ =
        connect_ranks(start_.config.device != "cpu",
                      {.rank = start_.rank,
                       .layout = layout_,
                       .address = start_.address,
                       .meeting = task.address,
                       .port = task.port,
                       .token = identity_.token,
                       .epoch = identity_.epoch,
                       .connect_timeout = kRankConnectTimeout,
                       .timeout = std::chrono::milliseconds(start_.collective_milliseconds),
                       .on_begin =
                           [this](int64_t number, const char* what) {
                             link_.set_progress({.num_collectives = number + 1, .doing = what});
                           }},
                      rendezvous_ ? &*rendezvous_ : nullptr);
    mesh_ = own_mesh_.get();
    const config::RunConfig& flags = start_.config;
    if (flags.ranks_of_own_engine() == 1) return;
    group_.emplace(
        *mesh_,
        EngineGroupConfig{.size = static_cast<int>(flags.ranks_of_own_engine()),
                          .is_on_gpus = flags.device != "cpu",
                          .address = start_.address,
                          .identity = identity_,
                          .timeout = std::chrono::milliseconds(start_.collective_milliseconds)});
  }

  cluster::WorkerLink& link_;
  const cluster::RunIdentity identity_;
  const SystemClock clock_;
  const RankStart start_;
  const comm::ParallelLayout layout_ = layout_of(start_.config);
  report::RunMemory memory_;
  plugin::TrainerFunctions functions_;
  std::optional<train::Checkpoint> checkpoint_;
  std::optional<comm::Rendezvous> rendezvous_;
  std::unique_ptr<comm::Mesh> own_mesh_;
  const comm::Mesh* mesh_ = &comm::Mesh::single();
  std::unique_ptr<model::Network> network_;
  std::optional<TrainerRole> trainer_;
  std::optional<EngineGroup> group_;             // where engines are of several ranks
  std::unique_ptr<model::Network> own_weights_;  // of the engine, where they are not network_'s
  std::optional<EngineRole> engine_;             // where each rank has one
  std::jthread server_;                          // of the engine
  std::jthread follower_;                        // in its place
};

/// Until the controller closes the engine's connection.
void serve_engine(cluster::WorkerLink& link, const cluster::RunIdentity& identity,
                  const EngineStart& start) {
  at::set_num_threads(start.num_threads);
  const SystemClock clock;
  EngineRole role(start, identity, clock, [&link](const std::string& why) {
    say(why);
    link.report_failure(cluster::FailureCause::kOwn, why);
    link.wait_for_end();
  });
  link.answer(to_text(role.ready()));
  link.set_progress({.num_collectives = 0, .doing = "serving requests"});
  say("the engine is ready");
  role.serve(kDataDescriptor);
}

void serve(cluster::WorkerLink& link, const cluster::RunIdentity& identity,
           std::optional<Worker>& worker) {
  while (const auto task = link.next_task()) {
    if (worker && is_engine_start(*task)) {
      worker->start_engine(engine_start_from(*task));
    } else if (worker) {
      worker->carry_out(trainer_task_from(*task));
    } else if (is_engine_start(*task)) {
      serve_engine(link, identity, engine_start_from(*task));
    } else if (is_engine_rank_start(*task)) {
      link.set_progress({.num_collectives = 0, .doing = "computing steps of the engine"});
      follow_engine(engine_rank_start_from(*task), identity, kDataDescriptor);
    } else {
      worker.emplace(rank_start_from(*task), identity, link);
    }
  }
}

}  // namespace

int run_worker(int control_descriptor, const cluster::RunIdentity& identity) {
  cluster::WorkerLink link(control_descriptor, identity);
  // Outside of the try block: when something fails it stays, because its destructor might wait for
  // collectives that are under way.
  std::optional<Worker> worker;
  try {
    serve(link, identity, worker);
    return 0;
  } catch (const comm::GroupError& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kPeers, error.what());
  } catch (const ConfigError& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kConfiguration, error.what());
  } catch (const std::exception& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kOwn, error.what());
  }
  link.wait_for_end();
}

}  // namespace slime::roles
