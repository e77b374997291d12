#include "engine/remote/engine_server.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "core/error.h"
#include "engine/device_copies.h"
#include "model/network.h"
#include "model/weight_delta.h"
#include "model/whole_weights.h"

namespace slime::engine {
namespace {

constexpr std::size_t kMostCalls = 1024;  // that wait; a client makes one or two at a time

}  // namespace

EngineServer::EngineServer(EngineClient& engine, int descriptor, TwoNetworks& networks,
                           EngineServerConfig config)
    : engine_(engine),
      networks_(networks),
      config_(std::move(config)),
      channel_(descriptor),
      epoch_(config_.epoch),
      calls_(kMostCalls),
      outbox_(channel_, config_.outbox, [this](const std::string&) { channel_.shut_down(); }) {}

void EngineServer::serve() {
  std::jthread calls([this] { carry_out_calls(); });
  const auto end = [&] {
    calls_.close();
    channel_.shut_down();
    abort_everything();
  };
  try {
    take_greeting();
    while (const auto frame = channel_.receive()) take(*frame);
  } catch (...) {
    end();
    throw;
  }
  end();
}

void EngineServer::take_greeting() {
  if (!config_.why_refused) return;
  const auto frame = channel_.receive();
  if (!frame) return;
  if (frame->type != static_cast<uint32_t>(EngineFrame::kGreeting))
    throw net::FrameError("the client is refused: it does not begin with the run's token");
  const std::string why = config_.why_refused(frame->payload);
  if (!why.empty()) throw net::FrameError("the client is refused: " + why);
}

void EngineServer::take(const net::Frame& frame) {
  switch (static_cast<EngineFrame>(frame.type)) {
    case EngineFrame::kSubmit:
      return submit(remote_request_from(frame.payload));
    case EngineFrame::kAbort:
      return abort(number_from(frame.payload));
    case EngineFrame::kAbortPrefix:
      // What fails here fails the requests too, which the client hears of.
      if (frame.payload.empty()) {
        static_cast<void>(engine_.abort_all());
      } else {
        static_cast<void>(engine_.abort_prefix(frame.payload));
      }
      return;
    case EngineFrame::kWeights:
      take_weights(weight_piece_from(frame.payload));
      if (config_.pass_weights_on) config_.pass_weights_on(frame.payload);
      return;
    case EngineFrame::kWeightDelta:
      return take_delta(delta_piece_from(frame.payload));
    case EngineFrame::kCall: {
      ControlCall call = control_call_from(frame.payload);
      if (call.kind == ControlCall::Kind::kLoad) return answer(carry_out(call));
      if (!calls_.try_push(call)) throw net::FrameError("the client has too many calls open");
      return;
    }
    default:
      throw net::FrameError(fmt::format("a frame of type {} came", frame.type));
  }
}

void EngineServer::submit(RemoteRequest request) {
  const uint64_t number = request.number;
  std::optional<FinishReason> refused;
  {
    const std::lock_guard lock(mutex_);
    ++num_requests_;
    if (open_.contains(number)) throw net::FrameError("two requests have one number");
    if (static_cast<int64_t>(open_.size()) < config_.max_open_requests) {
      open_.emplace(number, Open{});
    } else {
      refused = aborted(FinishReason::Cause::kQueueFull,
                        fmt::format("{} requests are open", open_.size()));
    }
  }
  if (refused) {
    GenerateUpdate update;
    update.prompt_tokens = static_cast<int64_t>(request.request.input_ids.size());
    update.finish = std::move(refused);
    return tell({number, std::move(update)});
  }
  const RequestHandle handle =
      engine_.submit(std::move(request.request), [this, number](GenerateUpdate update) {
        tell({number, std::move(update)});
      });
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found != open_.end()) found->second.handle = handle;  // else it has ended
}

void EngineServer::abort(uint64_t number) {
  std::optional<RequestHandle> handle;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(number);
    if (found != open_.end()) handle = found->second.handle;
  }
  if (handle) static_cast<void>(engine_.abort(*handle));  // an engine that is gone has ended it
}

void EngineServer::abort_everything() {
  std::vector<RequestHandle> handles;
  std::unique_lock lock(mutex_);
  for (const auto& [number, open] : open_)
    if (open.handle) handles.push_back(*open.handle);
  lock.unlock();
  for (const RequestHandle handle : handles) static_cast<void>(engine_.abort(handle));
  lock.lock();
  all_ended_.wait(lock, [this] { return open_.empty(); });
}

void EngineServer::tell(RemoteUpdate update) {
  const std::lock_guard lock(mutex_);
  const bool is_last = update.update.finish.has_value();
  const uint64_t number = update.number;
  told_.push_back(std::move(update));
  // The frame is made when its turn comes, of all that waits then.
  if (told_.size() == 1)
    outbox_.post_made(static_cast<uint32_t>(EngineFrame::kUpdates), [this] { return take_told(); });
  if (!is_last) return;
  open_.erase(number);
  if (open_.empty()) all_ended_.notify_all();
}

std::string EngineServer::take_told() {
  RemoteUpdates told;
  {
    const std::lock_guard lock(mutex_);
    told = std::exchange(told_, {});
  }
  return to_frame(told);
}

void EngineServer::tell_activity(Activity activity) {
  outbox_.post_made(static_cast<uint32_t>(EngineFrame::kActivity),
                    [activity] { return activity_frame(activity); });
}

void EngineServer::take_weights(const WeightPiece& piece) {
  const std::lock_guard lock(weights_mutex_);
  if (networks_.second == nullptr)
    throw net::FrameError("this engine takes no weights over a connection");
  model::Weights& fresh = networks_.second->trained();
  if (static_cast<int64_t>(piece.total_bytes) != model::whole_bytes(fresh)) {
    throw net::FrameError(fmt::format("the weights that come have {} bytes, the engine's {}",
                                      piece.total_bytes, model::whole_bytes(fresh)));
  }
  if (piece.offset == 0) arrived_bytes_ = 0;
  if (piece.offset != arrived_bytes_) throw net::FrameError("a piece of the weights is missing");
  model::write_whole_(fresh, static_cast<int64_t>(piece.offset), piece.bytes);
  arrived_bytes_ += piece.bytes.size();
}

Expected<void> EngineServer::begin_delta(uint64_t base) {
  if (networks_.second == nullptr) return failure("this engine takes no weights over a connection");
  if (base == 0 || base != publication_)
    return failure("the engine has other weights than those that changed");
  const at::NoGradGuard no_grad;
  networks_.second->trained().copy_from(networks_.running->trained());
  wait_for_copies(networks_.second->trained().flat().device());
  arrived_bytes_ = 0;
  delta_ = ArrivingDelta();
  return {};
}

void EngineServer::take_delta(const DeltaPiece& piece) {
  const std::lock_guard lock(weights_mutex_);
  if (!delta_) throw net::FrameError("nobody has said what changes");
  model::TensorDelta& tensor = delta_->tensor;
  if (piece.offset == 0)
    tensor = {.tensor = piece.tensor, .form = piece.form, .checksum = piece.checksum, .bytes = {}};
  if (piece.tensor != tensor.tensor || piece.offset != tensor.bytes.size())
    throw net::FrameError("a piece of a change is missing");
  tensor.bytes += piece.bytes;
  if (tensor.bytes.size() < piece.total_bytes) return;
  const Expected<void> applied = model::apply(tensor, networks_.second->trained());
  if (!applied && delta_->error.empty()) delta_->error = applied.error().message;
  tensor = {};
  ++delta_->num_applied;
}

Expected<void> EngineServer::apply_delta_of(const std::filesystem::path& directory, uint64_t base) {
  const Expected<void> begun = begin_delta(base);
  if (!begun) return begun;
  delta_.reset();
  try {
    model::Weights& weights = networks_.second->trained();
    for (const model::TensorDelta& tensor : model::read_delta(directory, weights).tensors) {
      Expected<void> applied = model::apply(tensor, weights);
      if (!applied) return applied;
    }
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(error.what());
  }
  return {};
}

bool EngineServer::take_constants(const std::vector<float>& constants) {
  Tensor own_C = networks_.second->trained().flat_constants();
  if (static_cast<int64_t>(constants.size()) != own_C.numel()) return false;
  own_C.copy_(at::tensor(constants, at::kFloat));
  return true;
}

void EngineServer::carry_out_calls() {
  while (const auto call = calls_.pop()) answer(carry_out(*call));
}

ControlAnswer EngineServer::carry_out(const ControlCall& call) {
  using Kind = ControlCall::Kind;
  ControlAnswer answer{.number = call.number, .error = {}, .load = {}};
  const auto note = [&answer](const auto& done) {
    if (!done) answer.error = done.error().message;
    return done.has_value();
  };
  switch (call.kind) {
    case Kind::kPause:
      note(engine_.pause(call.pause_mode));
      break;
    case Kind::kResume:
      note(engine_.resume());
      break;
    case Kind::kFlushCache: {
      const Expected<bool> flushed = engine_.flush_cache();
      if (note(flushed)) answer.is_flushed = *flushed;
      break;
    }
    case Kind::kSleep:
      note(engine_.sleep());
      break;
    case Kind::kWake:
      note(engine_.wake());
      break;
    case Kind::kUpdateWeights:
      if (note(update_weights(call)) && config_.last_copy_seconds)
        answer.copy_seconds = config_.last_copy_seconds();
      break;
    case Kind::kLoad: {
      const Expected<EngineLoad> load = engine_.load();
      if (note(load)) answer.load = *load;
      break;
    }
    case Kind::kExportWeights: {
      const std::lock_guard lock(weights_mutex_);
      answer.handles = networks_.second_handles;
      break;
    }
    case Kind::kBeginDelta: {
      const std::lock_guard lock(weights_mutex_);
      note(begin_delta(call.base));
      break;
    }
    case Kind::kCheckWeights: {
      const Expected<WeightChecksums> checked = check_weights(call.check);
      if (note(checked)) answer.checksums = *checked;
      break;
    }
  }
  return answer;
}

Expected<void> EngineServer::update_weights(const ControlCall& call) {
  const std::lock_guard lock(weights_mutex_);
  if (call.epoch < epoch_) {
    arrived_bytes_ = 0;
    delta_.reset();
    return failure(
        fmt::format("new weights of epoch {} are refused: the engine has had some of "
                    "epoch {}",
                    call.epoch, epoch_));
  }
  Expected<void> updated = bring(call);
  delta_.reset();
  if (!updated) return updated;
  epoch_ = call.epoch;
  publication_ = call.publication;
  return updated;
}

Expected<void> EngineServer::bring(const ControlCall& call) {
  WeightUpdate update{.version = call.version,
                      .source = InPlace{},
                      .running = call.running,
                      .stays_paused = call.stays_paused};
  switch (call.source) {
    case ControlCall::Source::kInPlace:
      update.source = config_.in_place;
      break;
    case ControlCall::Source::kDirectory:
      update.source = FromDirectory{call.directory};
      break;
    case ControlCall::Source::kSent:
      if (networks_.second == nullptr ||
          static_cast<int64_t>(arrived_bytes_) != model::whole_bytes(networks_.second->trained()))
        return failure("the new weights have not come whole");
      arrived_bytes_ = 0;
      return exchange_networks(call);
    case ControlCall::Source::kWritten:
      if (networks_.second_handles.empty())
        return failure("nobody can have written the new weights");
      arrived_bytes_ = 0;
      return exchange_networks(call);
    case ControlCall::Source::kDelta:
      if (!delta_ || delta_->num_applied != call.num_changed || !delta_->tensor.bytes.empty())
        return failure("what changed has not come whole");
      if (!delta_->error.empty()) return failure(delta_->error);
      return exchange_networks(call);
    case ControlCall::Source::kDeltaDirectory: {
      Expected<void> applied = apply_delta_of(call.directory, call.base);
      return applied ? exchange_networks(call) : applied;
    }
  }
  return engine_.update_weights(update);
}

Expected<WeightChecksums> EngineServer::check_weights(WeightCheck check) {
  const std::lock_guard lock(weights_mutex_);
  if (check == WeightCheck::kReset && networks_.second == nullptr)
    return failure("the engine's weights are those that are trained; nobody resets them");
  return engine_.check_weights(check);
}

Expected<void> EngineServer::exchange_networks(const ControlCall& call) {
  if (!take_constants(call.constants))
    return failure("the constants that came are not those of the engine's model");
  Expected<void> done = engine_.update_weights({.version = call.version,
                                                .source = Exchange{networks_.second},
                                                .running = call.running,
                                                .stays_paused = call.stays_paused});
  if (!done) return done;
  std::swap(networks_.running, networks_.second);
  std::swap(networks_.running_handles, networks_.second_handles);
  return {};
}

void EngineServer::answer(const ControlAnswer& answer) {
  outbox_.post_made(static_cast<uint32_t>(EngineFrame::kAnswer),
                    [frame = to_frame(answer)] { return frame; });
}

}  // namespace slime::engine
