#include "roles/engine_workers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cluster/workers.h"
#include "config/engine_groups.h"
#include "core/error.h"

namespace slime::roles {
namespace {

/// The first number, or the least: any engine may get any request.
void lower_to(std::atomic<int64_t>& least, int64_t number) {
  int64_t known = least;
  while ((known == 0 || number < known) && !least.compare_exchange_weak(known, number)) {
  }
}

using std::chrono::milliseconds;

constexpr std::chrono::minutes kLoadTimeout{30};  // a tokenizer may come from a slow disk
/// A process beats before it loads anything; a stopped one is found within this time.
constexpr milliseconds kFirstBeat{20'000};
constexpr milliseconds kLook{20};  // how often an engine is looked at
constexpr milliseconds kLongestPause{30'000};
constexpr milliseconds kBlame{3'000};  // in which the cause of a lost connection shows

/// Whether the trainer may write into the engines' memory itself.
bool goes_directly(const sync::PublisherConfig& publishes) {
  return !publishes.sends_changes && publishes.folder.empty();
}

sync::PublisherConfig publishes_by(
    sync::PublisherConfig config,
    const std::function<void(const std::filesystem::path&)>& behind_writing) {
  config.on_written = [&behind_writing](const std::filesystem::path& folder) {
    if (behind_writing) behind_writing(folder);
  };
  return config;
}

std::string way_of_weights(const sync::PublisherConfig& publishes,
                           const engine::RemoteEngine::Transfer& transfer) {
  if (!publishes.folder.empty()) return "through " + publishes.folder.string();
  if (publishes.sends_changes) return "as what has changed, through the host's memory";
  if (transfer.is_direct) return "from the trainer's device directly";
  const std::string& why = transfer.why_frames;
  return "through the host's memory" + (why.empty() ? "" : ", because " + why);
}

/// sync: others copy the published weights, on streams of their own.
void wait_for(const Tensor& copied_N) {
  if (copied_N.is_cpu()) return;
  c10::impl::VirtualGuardImpl(copied_N.device().type()).getStream(copied_N.device()).synchronize();
}

/// One that ends with this process.
class OwnEngineProcess final : public EngineProcess {
 public:
  OwnEngineProcess(const EngineWorkersConfig& config, int index,
                   const cluster::RunIdentity& identity, cluster::Launcher& launcher,
                   const Clock& clock)
      : index_(index),
        workers_({.noun = "engine",
                  .first_rank = index,
                  .count = 1,
                  .identity = identity,
                  .has_data = true,
                  .places = {config.places.at(index)},
                  .log_folder = config.log_folder,
                  .silence_limit = config.silence_limit,
                  .start_limit = kFirstBeat},
                 launcher, clock) {}

  EngineReady begin(const EngineStart& start, milliseconds limit) override {
    workers_.send_task(index_, to_frame(start));
    return engine_ready_from(workers_.answer(index_, limit));
  }
  int take_data() override { return workers_.take_data(index_); }
  bool has_failed() override { return workers_.has_failed(); }
  void check_alive() override { workers_.check_alive(); }

 private:
  const int index_;
  cluster::Workers workers_;
};

}  // namespace

EngineWorkers::EngineWorkers(EngineWorkersConfig config, model::Network& published,
                             model::Network* trained, WeightVersion version,
                             cluster::Launcher& launcher, const Clock& clock, Hear hear)
    : config_(std::move(config)),
      launcher_(launcher),
      clock_(clock),
      published_(published),
      trained_(trained),
      has_open_gpu_((trained != nullptr ? *trained : published).weights().flat().is_cuda()),
      version_(version),
      publisher_(publishes_by(config_.publishes, behind_writing_)),
      epoch_(config_.identity.epoch),
      router_({}, clock),
      hear_(std::move(hear)) {
  const bool is_on_host = trained_ != nullptr && published_.trained().flat().is_cpu();
  if (is_on_host && trained_->trained().flat().is_cuda())
    for (const Tensor& buffer : published_.trained().buffers().numbers())
      locked_.emplace_back(buffer);
  publisher_.begin();
  lives_.reserve(static_cast<std::size_t>(config_.count));
  for (int index = 0; index < config_.count; ++index)
    lives_.emplace_back([this, index](const std::stop_token& stop) { live(index, stop); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_started_ == config_.count || !failure_.empty(); });
  if (failure_.empty()) return;
  const std::string why = failure_;
  lock.unlock();
  end_lives();  // here: a constructor that throws has no destructor
  throw ConfigError(why);
}

EngineWorkers::~EngineWorkers() { end_lives(); }

void EngineWorkers::end_lives() {
  for (std::jthread& life : lives_) life.request_stop();
  lives_.clear();
}

void EngineWorkers::live(int index, const std::stop_token& stop) {
  bool has_served = false;
  int64_t num_restarts = 0;  // without progress
  milliseconds wait = config_.first_pause;
  std::string history;
  while (!stop.stop_requested()) {
    const Ending ending = live_once(index, stop);
    if (stop.stop_requested()) return;
    has_served |= ending.has_served;
    if (!has_served && !config_.starts_again) return note(index, /*serves=*/false, ending.why);
    if (ending.has_progressed) {
      num_restarts = 0;
      wait = config_.first_pause;
      history.clear();
    }
    history += (history.empty() ? "" : "\n") + ending.why;
    if (!config_.starts_again) {
      say(
          fmt::format("engine {} is gone, and the others go on without it (--use-fault-tolerance "
                      "starts it again): {}",
                      index, ending.why));
      std::unique_lock lock(mutex_);
      const bool is_last = ++num_given_up_ == config_.count;
      lock.unlock();
      if (is_last) router_.give_up("the last engine is gone: " + history);
      return;
    }
    if (num_restarts == config_.max_restarts) {
      const std::string why = fmt::format(
          "engine {} was started again {} times and drew nothing (--max-restarts {}):\n{}", index,
          num_restarts, config_.max_restarts, history);
      return has_served ? router_.give_up(why) : note(index, /*serves=*/false, why);
    }
    ++num_restarts;
    say(
        fmt::format("engine {} is started again in {:g} s, and what it was drawing goes on "
                    "elsewhere: {}",
                    index, std::chrono::duration<double>(wait).count(), ending.why));
    if (!pause(wait, stop)) return;
    wait = std::min(2 * wait, kLongestPause);
  }
}

EngineWorkers::Ending EngineWorkers::live_once(int index, const std::stop_token& stop) {
  Ending ending;
  std::unique_ptr<EngineProcess> process;  // behind the connection, which ends in the block
  try {
    const cluster::RunIdentity identity{.token = config_.identity.token, .epoch = epoch_};
    const cluster::WorkerPlace place = config_.places.at(index);
    process = make_process(index, identity);
    EngineStart start = config_.start;
    start.config = config::config_of_engine(config_.start.config, index);
    start.index = index;
    start.log_folder = config_.log_folder.string();
    const EngineReady ready = process->begin(start, kLoadTimeout);
    lower_to(max_request_tokens_, ready.max_request_tokens);
    // Closed before the process is told to stop: that is how it knows that nobody asks any more.
    engine::RemoteEngine remote(
        process->take_data(),
        {.name = fmt::format("engine {}", index),
         .answer_limit = std::max(config_.progress_limit, config_.silence_limit),
         .weight_piece_bytes = config_.weight_piece_bytes,
         .writes_to_peer = has_open_gpu_ && has_device(index) && place.node == 0 &&
                           goes_directly(config_.publishes),
         .on_activity = [this, index](engine::Activity activity) { hear(index, activity); },
         .greeting = cluster::to_greeting(identity),
         .epoch = [this] { return epoch_.load(); }});
    const std::shared_ptr<void> at_end(nullptr, [&](void*) {
      const std::lock_guard lock(mutex_);
      serving_.erase(index);
    });
    const router::EngineId id = take_in(index, remote, process->has_weights(), stop);
    ending.has_served = true;
    introduce(index, ready, remote.last_transfer());
    note(index, /*serves=*/true, "");
    ending.why = watch(
        index, remote, [&] { return process->has_failed(); }, stop);
    for (const router::Router::EngineView& view : router_.engines())
      if (view.id == id) ending.has_progressed = view.num_told > 0;
    remote.disconnect(ending.why);  // it may not answer any more
    router_.leave(id);
    hear(index, engine::Activity::kIdle);
    // How the process ended says more than that its connection did.
    const auto lost = clock_.now();
    while (!stop.stop_requested() && !process->has_failed() && clock_.now() - lost < kBlame)
      std::this_thread::sleep_for(kLook);
    if (!stop.stop_requested()) process->check_alive();
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    ending.why = error.what();
  }
  if (process && !stop.stop_requested()) process->give_up();
  return ending;
}

std::unique_ptr<EngineProcess> EngineWorkers::make_process(int index,
                                                           const cluster::RunIdentity& identity) {
  const cluster::WorkerPlace place = config_.places.at(index);
  if (config_.kept == nullptr)
    return std::make_unique<OwnEngineProcess>(config_, index, identity, launcher_, clock_);
  return config_.kept->process({.name = fmt::format("engine {}", index),
                                .place = place,
                                .command = {},
                                .identity = {},
                                .log = config_.log_folder / fmt::format("engine_{}.log", index)},
                               index);
}

router::EngineId EngineWorkers::take_in(int index, engine::RemoteEngine& remote, bool has_weights,
                                        const std::stop_token& stop) {
  // Of one version until it has joined.
  std::shared_lock lock(weights_mutex_);
  while (!is_whole_) {
    lock.unlock();
    if (!pause(kLook, stop)) throw std::runtime_error("the run ends");
    lock.lock();
  }
  engine::WeightSource source = engine::FromNetwork{&published_};
  if (has_weights) source = engine::InPlace{};
  engine::or_throw(remote.update_weights(
      {.version = version_, .source = std::move(source), .publication = publisher_.number()}));
  if (config_.kept != nullptr)
    engine::or_throw(remote.resume());  // an earlier trainer may have paused it
  const router::EngineId id = engine::or_throw(router_.join(remote));
  if (has_weights)
    say(fmt::format("engine {} has the weights of version {}: none are sent", index, version_));
  const std::lock_guard serving(mutex_);
  serving_[index] = &remote;
  return id;
}

void EngineWorkers::introduce(int index, const EngineReady& ready, const Transfer& transfer) {
  if (!has_device(index)) return;
  const cluster::WorkerPlace place = config_.places.at(index);
  say(fmt::format("engine {} computes on {} ({}device {}); new weights come {}", index,
                  ready.device, place.node == 0 ? "" : fmt::format("node {}, ", place.node),
                  place.device, way_of_weights(config_.publishes, transfer)));
  if (index > 0 || has_shown_memory_.exchange(true)) return;
  say(fmt::format("each of {} engines in a process of its own has", config_.count));
  for (const std::string& line : ready.memory) say(line);
}

std::optional<UpdateTraffic> EngineWorkers::last_traffic() {
  const std::shared_lock updates(weights_mutex_);
  return traffic_;
}

double EngineWorkers::longest(double Transfer::*seconds) {
  const std::shared_lock updates(weights_mutex_);
  const std::lock_guard lock(mutex_);
  double most = 0;
  for (const auto& [index, remote] : serving_)
    most = std::max(most, remote->last_transfer().*seconds);
  return most;
}

std::string EngineWorkers::watch(int index, engine::RemoteEngine& remote,
                                 const std::function<bool()>& has_process_failed,
                                 const std::stop_token& stop) {
  Clock::TimePoint next_check = clock_.now() + config_.first_wait;
  while (pause(kLook, stop)) {
    if (has_process_failed()) return fmt::format("engine {} has failed", index);
    if (const std::optional<std::string> why = remote.why_lost()) return *why;
    if (!config_.starts_again || clock_.now() < next_check) continue;
    next_check = clock_.now() + config_.check_interval;
    const Expected<engine::EngineLoad> load = remote.load();
    if (!load) return load.error().message;
    const std::chrono::duration<double> limit = config_.progress_limit;
    if (load->seconds_without_progress > limit.count()) {
      return fmt::format(
          "engine {} has made no step for {:.1f} s "
          "(--rollout-health-check-timeout {:g})",
          index, load->seconds_without_progress, limit.count());
    }
  }
  return "the run ends";
}

void EngineWorkers::update_from(model::Network& network, const Tensor& before_N) {
  const sync::Publication publication = publisher_.prepare(network, version_, before_N);
  engine::or_throw(router_.update_weights({.version = version_,
                                           .source = publication.source(),
                                           .running = config_.running,
                                           .publication = publication.number}));
  publisher_.end(publication);
  traffic_ = {.bytes = publication.file_bytes, .density = publication.density()};
  std::unique_lock lock(mutex_);
  std::string all_was_sent;
  for (const auto& [index, remote] : serving_) {
    const Transfer& transfer = remote->last_transfer();
    traffic_.bytes += transfer.bytes;
    if (!transfer.why_whole.empty())
      all_was_sent = fmt::format("engine {} got all weights: {}", index, transfer.why_whole);
  }
  lock.unlock();
  if (!all_was_sent.empty()) say(all_was_sent);
}

void EngineWorkers::publish(const FetchWeights& fetch) {
  const at::NoGradGuard no_grad;
  const Tensor& published_N = published_.trained().flat();
  if (trained_ != nullptr && published_.trained().has_formats()) {  // codes made there are sent
    is_whole_ = false;
    published_.trained().copy_from(trained_->trained());
    wait_for(trained_->trained().flat());
    is_whole_ = true;
    return update_from(published_, Tensor());
  }
  if (trained_ != nullptr) {  // from device to device
    update_from(*trained_, published_N);
    published_.trained().copy_from(trained_->trained());
    wait_for(trained_->trained().flat());
    return;
  }
  const bool has_before = publisher_.sends_changes() && is_whole_;
  const Tensor before_N = has_before ? published_N.clone() : Tensor();
  is_whole_ = false;  // also when this throws
  fetch(published_);
  is_whole_ = true;
  update_from(published_, before_N);
}

void EngineWorkers::update_weights(WeightVersion version, const FetchWeights& fetch) {
  const std::unique_lock lock(weights_mutex_);
  version_ = version;
  publish(fetch);
}

void EngineWorkers::begin_epoch(int64_t epoch, WeightVersion version, model::Network* trained,
                                const FetchWeights& fetch) {
  const std::unique_lock lock(weights_mutex_);
  trained_ = trained;
  epoch_ = epoch;
  version_ = version;
  publish(fetch);
}

void EngineWorkers::note(int index, bool serves, const std::string& failure) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = num_started_ < config_.count;
    if (serves && is_first) ++num_started_;
    if (!serves) failure_ = failure;
  }
  changed_.notify_all();
  if (serves && !is_first) say(fmt::format("engine {} serves again", index));
}

void EngineWorkers::say(const std::string& line) {
  const std::lock_guard lock(tell_mutex_);
  if (tell_) {
    tell_(line);
  } else {
    unsaid_.push_back(line);
  }
}

void EngineWorkers::tell_by(std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(tell_mutex_);
  tell_ = std::move(tell);
  if (!tell_) return;
  for (const std::string& line : std::exchange(unsaid_, {})) tell_(line);
}

void EngineWorkers::hear(int index, engine::Activity activity) {
  const std::lock_guard lock(tell_mutex_);
  if (hear_) hear_(index, activity);
}

void EngineWorkers::call_behind_writing(std::function<void(const std::filesystem::path&)> call) {
  const std::unique_lock lock(weights_mutex_);
  behind_writing_ = std::move(call);
}

void EngineWorkers::hear_by(Hear hear) {
  const std::lock_guard lock(tell_mutex_);
  hear_ = std::move(hear);
}

bool EngineWorkers::pause(milliseconds time, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace slime::roles
