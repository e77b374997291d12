#include "loop/worker.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cluster/worker_link.h"
#include "config/parse_flags.h"
#include "core/clock.h"
#include "core/error.h"
#include "loop/networks.h"
#include "loop/rank_tasks.h"
#include "loop/train_config.h"
#include "model/placement.h"
#include "train/checkpoint.h"
#include "train/gloo_ranks.h"

namespace slime::loop {
namespace {

constexpr std::chrono::seconds kConnectTimeout{60};

void say(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

config::RunConfig config_of(const RankStart& start) {
  config::ParsedFlags flags = config::parse_flags(start.arguments);
  config::complete_and_validate(flags);
  return std::move(flags.config);
}

/// Everything of a rank, in the order in which it comes to be.
class WorkerRank final {
 public:
  WorkerRank(const RankStart& start, cluster::WorkerLink& link)
      : link_(link), config_(config_of(start)) {
    at::set_num_threads(start.num_threads);
    std::optional<train::Checkpoint> checkpoint;
    if (!start.checkpoint.empty())
      checkpoint = train::read_checkpoint(start.checkpoint, start.iteration);
    const auto precision = model::precision_on(config_.device, config_.dtype);
    network_ =
        model::load_network(checkpoint ? start.checkpoint : config_.hf_checkpoint, precision);
    train::OtherNetworks others = load_other_networks(config_, precision);
    link_.answer("");
    ranks_ = train::make_gloo_ranks(
        {.rank = start.rank,
         .size = start.size,
         .port = start.port,
         .connect_timeout = kConnectTimeout,
         .timeout = std::chrono::milliseconds(start.collective_milliseconds),
         .on_begin =
             [&link](int64_t number, const char* what) {
               link.set_progress({.num_collectives = number + 1, .doing = what});
             }},
        nullptr);
    train::TrainConfig trainer = make_train_config(config_, start.num_rollouts);
    trainer.frozen = frozen_names(config_, network_->weights());
    trainer_.emplace(*network_, trainer, clock_, std::move(others), ranks_.get());
    if (checkpoint && start.loads_optimizer) train::restore_trainer(*checkpoint, *trainer_, say);
    say(fmt::format("rank {} of {} is ready", start.rank, start.size));
  }

  void carry_out(RankTask task, std::string_view body) {
    switch (task) {
      case RankTask::kTrain:
        link_.answer(train::to_frame(trainer_->train(train::share_from_frame(body)).log_probs));
        return;
      case RankTask::kPublished:
        trainer_->weights_published();
        return;
      case RankTask::kSave:
        train::join_save(*trainer_);
        return;
      case RankTask::kStart:
        break;
    }
    throw BugError("a rank that has started gets batches");
  }

 private:
  cluster::WorkerLink& link_;
  const SystemClock clock_;
  config::RunConfig config_;
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<train::Ranks> ranks_;
  std::optional<train::Trainer> trainer_;
};

void serve(cluster::WorkerLink& link, std::optional<WorkerRank>& rank) {
  while (const auto task = link.next_task()) {
    check(!task->empty(), "a task has a kind");
    const auto kind = static_cast<RankTask>(task->front());
    const std::string_view body = std::string_view(*task).substr(1);
    if (kind == RankTask::kStart) {
      check(!rank.has_value(), "a rank starts once");
      rank.emplace(rank_start_from(parse_json(body, "the controller's first task")), link);
    } else {
      check(rank.has_value(), "a rank starts first");
      rank->carry_out(kind, body);
    }
  }
}

}  // namespace

int run_worker(int control_descriptor) {
  cluster::WorkerLink link(control_descriptor);
  // Outside of the try block: when something fails it stays, because its destructor might wait for
  // collectives that are under way.
  std::optional<WorkerRank> rank;
  try {
    serve(link, rank);
    return 0;
  } catch (const train::RanksError& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kPeers, error.what());
  } catch (const std::exception& error) {
    say(error.what());
    link.report_failure(cluster::FailureCause::kOwn, error.what());
  }
  link.wait_for_end();
}

}  // namespace slime::loop
