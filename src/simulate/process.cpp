#include "simulate/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/field_reader.h"
#include "loop/async_loop.h"
#include "loop/data_state.h"
#include "loop/ledger_prompts.h"
#include "loop/sync_loop.h"
#include "report/training_outcomes.h"

namespace slime::simulate {
namespace {

struct Killed {};
struct DataEnded {};

constexpr const char* kDiskIsFull = "the disk is full";

/// A disk that may be full in the middle of a line.
class TightDisk final : public buffer::AppendFile {
 public:
  TightDisk(std::unique_ptr<buffer::AppendFile> file, std::function<bool()> is_full)
      : file_(std::move(file)), is_full_(std::move(is_full)) {}

  Expected<void> append(std::string_view bytes) override {
    if (!is_full_()) return file_->append(bytes);
    const Expected<void> torn = file_->append(bytes.substr(0, bytes.size() / 2));
    return torn ? Expected<void>(failure(kDiskIsFull)) : torn;
  }
  Expected<void> sync() override { return {}; }  // its folder is memory
  Expected<void> truncate(int64_t size) override { return file_->truncate(size); }
  Expected<int64_t> size() const override { return file_->size(); }

 private:
  const std::unique_ptr<buffer::AppendFile> file_;
  const std::function<bool()> is_full_;
};

WeightVersion first_version(const Disk& disk, const setup::RunSchedule& schedule) {
  if (!disk.checkpoint) return 0;
  return setup::RunSchedule::version_from(disk.checkpoint->version,
                                          schedule.publishes_after(disk.checkpoint->step));
}

setup::RunSchedule schedule_of(const Scenario& scenario, const Disk& disk) {
  setup::RunSchedule schedule{.first_step = disk.checkpoint ? disk.checkpoint->step + 1 : 0,
                              .num_steps = scenario.num_steps,
                              .save_interval = scenario.save_interval,
                              .steps_per_update = scenario.steps_per_update};
  if (scenario.eval_interval > 0) schedule.eval_interval = scenario.eval_interval;
  return schedule;
}

/// Behind the last restart nothing ends a process.
StubEngineConfig engine_of(const Scenario& scenario, int64_t process) {
  StubEngineConfig config = scenario.engine;
  if (process >= scenario.max_restarts) config.faults.fatal = config.faults.death = 0;
  return config;
}

}  // namespace

void Process::Engines::yield_to_training() {
  if (scenario_.shares_weights) engine::or_throw(engine_.pause(engine::PauseMode::kInPlace));
}

void Process::Engines::update_weights(WeightVersion version, const FetchWeights& /*fetch*/) {
  engine::or_throw(engine_.pause(engine::PauseMode::kInPlace));
  queue_.pass(scenario_.engine.cost.update);
  engine::or_throw(
      engine_.update_weights({.version = version,
                              .running = scenario_.recomputes ? engine::RunningRequests::kRecompute
                                                              : engine::RunningRequests::kKeep}));
  engine::or_throw(engine_.resume());
}

Process::Process(const Scenario& scenario, Disk& disk, int64_t number, const Trace& trace)
    : scenario_(scenario),
      disk_(disk),
      number_(number),
      trace_(trace),
      chance_(scenario.seed * 31 + static_cast<uint64_t>(number)),
      rewards_(queue_,
               {.num_threads = scenario.reward_threads,
                .mean_seconds = scenario.engine.cost.reward,
                .hangs = scenario.reward_hangs},
               chance_.next()),
      queue_([this](rollout::ScoreJob job) { rewards_.begin(std::move(job)); },
             [this] { before_event(); }, scenario.most_turns),
      engine_(queue_, engine_of(scenario, number), scenario.length_of, chance_.next(),
              first_version(disk, schedule_of(scenario, disk))),
      engines_(queue_, engine_, scenario_),
      prompts_(nullptr, {.samples_per_prompt = scenario.samples_per_group}),
      checker_(scenario),
      schedule_(schedule_of(scenario, disk)) {}

Process::~Process() { queue_.set_undisturbed(); }

void Process::note(const char* what, int64_t step) {
  if (trace_) trace_(fmt::format("{:10.4f}  step {}: {}", queue_.seconds(), step, what));
}

void Process::before_event() {
  if (!goes_wrong(scenario_.kill)) return;
  fault_ = "killed";
  throw Killed{};
}

/// What ends the process; after enough restarts nothing does.
bool Process::goes_wrong(double probability) {
  return number_ < scenario_.max_restarts && chance_.happens(probability);
}

void Process::disk_may_be_full() {
  if (!goes_wrong(scenario_.disk_full)) return;
  fault_ = kDiskIsFull;
  throw ConfigError(fault_);
}

std::unique_ptr<buffer::Ledger> Process::open_ledger() {
  const auto is_full = [this] {
    const bool now = goes_wrong(scenario_.disk_full);
    if (now) fault_ = kDiskIsFull;
    return now;
  };
  const auto on_disk = [&is_full](std::unique_ptr<buffer::AppendFile> file) {
    return std::make_unique<TightDisk>(std::move(file), is_full);
  };
  using buffer::Ledger;
  if (disk_.checkpoint)
    return std::make_unique<Ledger>(
        Ledger::open_at(disk_.ledger, disk_.checkpoint->data.at("ledger").as_int64(),
                        on_disk(buffer::open_append_file(disk_.ledger))));
  std::filesystem::remove(disk_.ledger);
  return std::make_unique<Ledger>(
      Ledger::create(disk_.ledger, on_disk(buffer::create_append_file(disk_.ledger))));
}

void Process::restore() {
  outcomes_ = std::make_unique<loop::OutcomeLog>(open_ledger(), true);
  if (disk_.checkpoint)
    prompts_.restore(disk_.checkpoint->data.at("data_source").as_object(), "checkpoint");
  outcomes_->begin_with(prompts_);
  if (!disk_.checkpoint) return checker_.begin({}, 0);
  const int64_t num_waiting = prompts_.num_waiting();
  std::vector<Group> waiting = prompts_.take(num_waiting);
  checker_.begin(disk_.checkpoint->course, num_tokens(waiting));
  prompts_.add(std::move(waiting));
}

/// The scenario's prompts; the witness sees what goes out and what is dropped.
class Process::Prompts final : public loop::LedgerPrompts {
 public:
  explicit Prompts(Process& process)
      : LedgerPrompts(process.prompts_, *process.outcomes_), process_(process) {}

  std::vector<Group> take(int64_t count) override {
    buffer::DataSource& prompts = process_.prompts_;
    const int64_t left =
        process_.scenario_.num_prompts - prompts.next_group() + prompts.num_waiting();
    std::vector<Group> groups = LedgerPrompts::take(std::min(count, left));
    process_.checker_.given_out(groups);
    return groups;
  }

  void dropped(const Group& group, const std::string& reason) override {
    LedgerPrompts::dropped(group, reason);
    process_.checker_.dropped(group, reason);
  }

 private:
  Process& process_;
};

rollout::RolloutHooks Process::make_hooks() {
  rollout_prompts_ = std::make_unique<Prompts>(*this);
  rollout::RolloutHooks hooks;
  hooks.prompts = rollout_prompts_.get();
  hooks.detokenize = [](std::span<const TokenId>) { return std::string(); };
  hooks.scorer.rule.score = [this](const Sample&, const std::stop_token&) -> Expected<json::value> {
    if (chance_.happens(scenario_.reward_fails)) return failure("the judge does not know");
    return json::value(1.0);
  };
  if (scenario_.filter_rate > 0) {
    hooks.filter = [this](const Group& group) {
      Chance own(scenario_.seed + static_cast<uint64_t>(group.ordinal) * 1001);
      return FilterVerdict{.keep = !own.happens(scenario_.filter_rate), .reason = "made_up"};
    };
  }
  return hooks;
}

rollout::ResponseRules Process::rules(uint64_t seed) const {
  rollout::ResponseRules rules;
  rules.sampling.max_new_tokens = scenario_.max_response;
  rules.seed = seed;
  return rules;
}

roles::Handover Process::handover() {
  return {.engines = engines_,
          .stream = has_stream_ ? rollout_.get() : nullptr,
          .takes_turns = scenario_.shares_weights,
          .update_mode = scenario_.update_mode};
}

void Process::open_rollout() {
  rollout_ = std::make_unique<rollout::Rollout>(
      engine_,
      rollout::RolloutConfig{
          .groups_per_step = scenario_.groups_per_step,
          .groups_per_refill = scenario_.groups_per_refill,
          .max_concurrent_samples = scenario_.max_concurrent_samples,
          .num_slots = std::min(scenario_.max_concurrent_samples,
                                scenario_.engine.max_running * scenario_.engine.num_devices),
          .keeps_partial = scenario_.keeps_partial,
          .reward_timeout = std::chrono::duration<double>(scenario_.reward_timeout),
          .max_waiting_groups = scenario_.max_waiting_groups},
      make_hooks(), &queue_);
}

void Process::start_stream(WeightVersion version) {
  has_stream_ = true;
  outcomes_->lock_by([this] { return std::make_shared<rollout::Rollout::StateLock>(*rollout_); });
  rollout_->open_stream({.staleness = {.groups_per_step = scenario_.groups_per_step,
                                       .steps_per_update = scenario_.steps_per_update,
                                       .max_lag = scenario_.max_staleness,
                                       .policy = scenario_.policy,
                                       .first_step = schedule_.first_step,
                                       .first_version = version},
                         .num_steps = scenario_.num_steps,
                         .rules = rules(kTrainingSeed),
                         .order = scenario_.order,
                         .stop = &rank_is_lost_});
}

report::Collected Process::collect(int64_t step) {
  note("collect", step);
  if (!has_stream_) {
    rollout_->open_step({.step = step,
                         .rules = rules(kTrainingSeed),
                         .version = engine_.weight_version(),
                         .stop = &rank_is_lost_});
  }
  rollout::StepResult result = rollout::take_step(*rollout_);
  if (rank_is_lost_) throw ConfigError(fault_);
  check(result.end.step == step || result.groups.empty(), "steps come in their order");
  checker_.collected(step, result.groups, engine_.weight_version(), result.end.discarded_tokens);
  const bool is_short = static_cast<int64_t>(result.groups.size()) < scenario_.groups_per_step;
  check(!is_short || scenario_.num_prompts < std::numeric_limits<int64_t>::max(),
        "a step has all of its groups while there are prompts");
  if (result.groups.empty()) throw DataEnded{};
  figures_.num_groups += static_cast<int64_t>(result.groups.size());
  figures_.largest_lag = std::max(figures_.largest_lag, checker_.largest_lag());
  return {.groups = std::move(result.groups), .generated_tokens = result.end.generated_tokens};
}

train::TrainReport Process::train_on(const std::vector<Group>& groups) {
  if (goes_wrong(scenario_.rank_lost)) {
    queue_.after(chance_.uniform(0, 1), [this] {
      fault_ = "a rank is lost";
      rank_is_lost_ = true;
    });
  }
  handover().before_training();
  const estimate::CostModel& cost = scenario_.engine.cost;
  const int64_t prompt_tokens = scenario_.engine.prompt_tokens * scenario_.samples_per_group *
                                static_cast<int64_t>(groups.size());
  const double seconds =
      cost.train + cost.train_per_token * static_cast<double>(num_tokens(groups) + prompt_tokens);
  queue_.pass(seconds);
  figures_.train_seconds += seconds;
  if (rank_is_lost_) throw ConfigError(fault_);
  train::TrainReport report;
  std::size_t num_samples = 0;
  for (const Group& group : groups) num_samples += group.samples.size();
  report.samples_of_steps.resize(1);
  report.samples_of_steps[0].resize(num_samples);
  std::iota(report.samples_of_steps[0].begin(), report.samples_of_steps[0].end(), 0);
  report.steps.resize(1);
  if (scenario_.max_restarts > 0 && chance_.happens(0.05))
    report.steps[0].skipped = "gradients that are not finite";
  return report;
}

void Process::publish(WeightVersion version) {
  note("publish", version);
  handover().publish(version, nullptr);
}

void Process::end_step(int64_t step, const report::Collected& collected,
                       const train::TrainReport* report) {
  const std::vector<buffer::LedgerRecord> outcomes =
      report::training_outcomes(collected.groups, *report, step);
  outcomes_->trained(outcomes);
  checker_.trained(step, outcomes);
  ++figures_.num_steps;
}

void Process::evaluate(int64_t step) {
  note("evaluate", step);
  std::vector<Group> groups;
  for (int64_t i = 0; i < 3; ++i) {
    Group group{.ordinal = i, .samples = std::vector<Sample>(1)};
    group.samples[0].ordinal = num_evaluations_ * 3 + i;
    groups.push_back(std::move(group));
  }
  ++num_evaluations_;
  groups = rollout_->evaluate(std::move(groups), rules(kEvaluationSeed), rank_is_lost_);
  num_evaluated_tokens_ += num_tokens(groups);
  if (rank_is_lost_) throw ConfigError(fault_);
  check(groups.size() == 3, "an evaluation gives all that was asked for");
  for (const Group& group : groups) {
    const Status status = group.samples[0].status;
    check(status == Status::kCompleted || status == Status::kTruncated || status == Status::kFailed,
          "evaluated samples have ended");
  }
}

void Process::save(int64_t step) {
  note("save", step);
  disk_may_be_full();
  Disk::Checkpoint made{.step = step, .version = engine_.weight_version()};
  made.data = loop::data_state(step, prompts_, *outcomes_, loop::open_groups_of(*rollout_));
  made.course = checker_.course();
  disk_.checkpoint = std::move(made);
}

void Process::finish(int64_t step) {
  note("the end", step);
  figures_.seconds = queue_.seconds();
}

void Process::loop() {
  try {
    if (scenario_.is_async) {
      loop::train_async(*this, schedule_);
    } else {
      loop::train_sync(*this, schedule_);
    }
  } catch (const DataEnded&) {
    note("the data has ended", figures_.num_steps);
    figures_.seconds = queue_.seconds();
  }
}

/// All that is under way comes back, and what was not needed is in the buffer.
void Process::come_to_rest() {
  queue_.set_undisturbed();
  figures_.engine_seconds = engine_.busy_seconds();
  figures_.tokens_sampled = engine_.num_sampled();
  while (queue_.advance()) {
  }
  check(engine_.num_requests() == 0, "an ended run leaves nothing in the engine");
  loop::data_state(schedule_.num_steps, prompts_, *outcomes_, loop::open_groups_of(*rollout_));
  std::vector<Group> waiting = prompts_.take(prompts_.num_waiting());
  checker_.ended(disk_.ledger, waiting, engine_.num_sampled() - num_evaluated_tokens_);
  figures_.tokens_trained = checker_.tokens_trained();
  figures_.tokens_discarded = checker_.tokens_discarded();
  figures_.lag_sum = checker_.lag_sum();
}

std::optional<Process::Ended> Process::run() {
  std::optional<Ended> ended;
  try {
    restore();
    open_rollout();
    loop();
    come_to_rest();
  } catch (const Killed&) {
    ended = Ended{fault_};
  } catch (const std::runtime_error& error) {
    const EngineFaults& engine = scenario_.engine.faults;
    const bool may_fail =
        number_ < scenario_.max_restarts && (engine.fatal > 0 || engine.death > 0);
    check(!fault_.empty() || may_fail,
          std::string("nothing ends a run where nothing goes wrong: ") + error.what());
    ended = Ended{error.what()};
  }
  figures_.num_events = queue_.num_events();
  queue_.set_undisturbed();
  rollout_.reset();
  rewards_.forget();
  check(engine_.num_requests() == 0, "a rollout that is destroyed leaves nothing in the engine");
  if (ended && trace_)
    trace_(fmt::format("{:10.4f}  the process ends: {}", queue_.seconds(), ended->reason));
  return ended;
}

}  // namespace slime::simulate
