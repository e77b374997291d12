#include "engine/remote/remote_engine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"
#include "model/weight_delta.h"

namespace slime::engine {
namespace {

using Cause = FinishReason::Cause;
using Kind = ControlCall::Kind;

GenerateUpdate last_update(std::string rid, int64_t prompt_tokens, FinishReason finish) {
  GenerateUpdate update;
  update.rid = std::move(rid);
  update.prompt_tokens = prompt_tokens;
  update.finish = std::move(finish);
  return update;
}

}  // namespace

RemoteEngine::RemoteEngine(int descriptor, RemoteEngineConfig config)
    : config_(std::move(config)),
      channel_(descriptor),
      outbox_(channel_, config_.outbox,
              [this](const std::string& why) { lose(Cause::kEngineLost, why); }) {
  check(config_.weight_piece_bytes > 0, "a piece of weights has bytes");
  if (!config_.greeting.empty())
    static_cast<void>(send(EngineFrame::kGreeting, config_.greeting));  // lost: others say so
  reader_ = std::thread([this] { read(); });
}

RemoteEngine::~RemoteEngine() {
  lose(Cause::kShuttingDown, "its client is shutting down");
  reader_.join();
}

void RemoteEngine::read() {
  try {
    while (const auto frame = channel_.receive()) take(*frame);
    lose(Cause::kEngineLost, "the other end is gone");
  } catch (const net::FrameError& error) {
    lose(Cause::kEngineLost, error.what());
  }
  end_all();
}

void RemoteEngine::take(const net::Frame& frame) {
  switch (static_cast<EngineFrame>(frame.type)) {
    case EngineFrame::kUpdates:
      return take_updates(frame.payload);
    case EngineFrame::kAnswer: {
      ControlAnswer answer = control_answer_from(frame.payload);
      const std::lock_guard lock(mutex_);
      const auto found = asked_.find(answer.number);
      if (found == asked_.end()) return;  // nobody waits for it any more
      found->second.set_value(std::move(answer));
      asked_.erase(found);
      return;
    }
    case EngineFrame::kActivity: {
      const Activity activity = activity_from(frame.payload);
      if (config_.on_activity) config_.on_activity(activity);
      return;
    }
    default:
      throw net::FrameError(fmt::format("a frame of type {} came", frame.type));
  }
}

void RemoteEngine::take_updates(std::string_view payload) {
  for (auto& [number, update] : remote_updates_from(payload)) {
    const OnUpdate* on_update = nullptr;
    std::optional<Open> ended;
    {
      const std::lock_guard lock(mutex_);
      const auto found = open_.find(number);
      if (found == open_.end()) continue;
      update.rid = found->second.rid;
      if (update.finish) {
        ended = std::move(found->second);
        open_.erase(found);
      } else {
        on_update = &found->second.on_update;  // stays: only this thread takes it out
      }
    }
    (ended ? ended->on_update : *on_update)(std::move(update));
  }
}

void RemoteEngine::lose(Cause cause, const std::string& why) const {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = aborted(cause, fmt::format("{} is lost: {}", config_.name, why));
  }
  channel_.shut_down();
}

tl::unexpected<Error> RemoteEngine::lost_error() const { return failure(lost_->message); }

void RemoteEngine::end_all() {
  std::unordered_map<uint64_t, Open> open;
  std::map<uint64_t, std::promise<Expected<ControlAnswer>>> asked;
  FinishReason why;
  {
    const std::lock_guard lock(mutex_);
    open = std::exchange(open_, {});
    asked = std::exchange(asked_, {});
    why = *lost_;
  }
  for (auto& [number, promise] : asked) promise.set_value(failure(why.message));
  std::map<uint64_t, Open> in_order(std::make_move_iterator(open.begin()),
                                    std::make_move_iterator(open.end()));
  for (auto& [number, request] : in_order)
    request.on_update(last_update(std::move(request.rid), request.prompt_tokens, why));
}

RequestHandle RemoteEngine::submit(GenerateRequest request, OnUpdate on_update) {
  std::unique_lock lock(mutex_);
  const uint64_t number = ++num_frames_;
  const auto handle = static_cast<RequestHandle>(number);
  if (request.rid.empty()) request.rid = fmt::format("request-{}", number);
  const auto prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  if (lost_) {
    const FinishReason why = *lost_;
    lock.unlock();
    on_update(last_update(std::move(request.rid), prompt_tokens, why));
    return handle;
  }
  open_.emplace(
      number,
      Open{.rid = request.rid, .prompt_tokens = prompt_tokens, .on_update = std::move(on_update)});
  lock.unlock();
  if (outbox_.post(static_cast<uint32_t>(EngineFrame::kSubmit),
                   to_frame(RemoteRequest{number, std::move(request)})))
    return handle;
  lock.lock();
  const auto found = open_.find(number);
  if (lost_ || outbox_.is_closed() || found == open_.end())
    return handle;  // it ends with the others
  Open refused = std::move(found->second);
  open_.erase(found);
  lock.unlock();
  refused.on_update(
      last_update(std::move(refused.rid), refused.prompt_tokens,
                  aborted(Cause::kQueueFull,
                          fmt::format("{} does not take its requests fast enough; try again later",
                                      config_.name))));
  return handle;
}

/// However much waits already: it is small.
Expected<void> RemoteEngine::send(EngineFrame type, std::string payload) {
  if (outbox_.post_made(static_cast<uint32_t>(type),
                        [payload = std::move(payload)] { return payload; }))
    return {};
  return failure(fmt::format("{} is lost", config_.name));
}

Expected<void> RemoteEngine::abort(RequestHandle request) {
  return send(EngineFrame::kAbort, number_frame(static_cast<uint64_t>(request)));
}

Expected<void> RemoteEngine::abort_prefix(const std::string& prefix) {
  return send(EngineFrame::kAbortPrefix, prefix);
}

Expected<ControlAnswer> RemoteEngine::ask(ControlCall call, std::chrono::milliseconds limit) const {
  std::future<Expected<ControlAnswer>> answer;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return lost_error();
    call.number = ++num_frames_;
    if (!is_own_thread()) answer = asked_[call.number].get_future();
  }
  const bool is_sent = outbox_.post_made(static_cast<uint32_t>(EngineFrame::kCall),
                                         [frame = to_frame(call)] { return frame; });
  if (!answer.valid()) {
    if (!is_sent) return failure(fmt::format("{} is lost", config_.name));
    return ControlAnswer{};
  }
  if (!is_sent || answer.wait_for(limit) == std::future_status::ready) return answer.get();
  lose(Cause::kEngineLost,
       fmt::format("no answer within {:g} s", std::chrono::duration<double>(limit).count()));
  return answer.get();
}

Expected<void> RemoteEngine::order(ControlCall call) const {
  const auto answer = ask(std::move(call), config_.answer_limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error) return failure(fmt::format("{}: {}", config_.name, *answer->error));
  return {};
}

Expected<void> RemoteEngine::pause(PauseMode mode) {
  return order({.kind = Kind::kPause, .pause_mode = mode});
}
Expected<void> RemoteEngine::resume() { return order({.kind = Kind::kResume}); }
Expected<void> RemoteEngine::sleep() { return order({.kind = Kind::kSleep}); }
Expected<void> RemoteEngine::wake() { return order({.kind = Kind::kWake}); }

Expected<bool> RemoteEngine::flush_cache() {
  const auto answer = ask({.kind = Kind::kFlushCache}, config_.answer_limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error) return failure(fmt::format("{}: {}", config_.name, *answer->error));
  return answer->is_flushed;
}

Expected<EngineLoad> RemoteEngine::load() const {
  if (is_own_thread()) return failure("the load is not known at once");
  const auto answer = ask({.kind = Kind::kLoad}, config_.answer_limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error) return failure(fmt::format("{}: {}", config_.name, *answer->error));
  return answer->load;
}

Expected<ControlCall::Source> RemoteEngine::bring_weights(const std::vector<Tensor>& buffers) {
  const Expected<std::vector<kernels::PeerMemory*>> peers = peer_memory();
  if (!peers) return tl::make_unexpected(peers.error());
  transfer_.is_direct = !peers->empty();
  if (transfer_.is_direct) {
    if (peers->size() != buffers.size())
      return failure(config_.name + " has exported memory for weights of another format");
    try {
      transfer_.seconds = 0;
      for (std::size_t i = 0; i < buffers.size(); ++i)
        transfer_.seconds += (*peers)[i]->write(buffers[i]);
    } catch (const std::runtime_error& error) {
      return failure(fmt::format("{}: {}", config_.name, error.what()));
    }
    return ControlCall::Source::kWritten;
  }
  const SystemClock clock;
  const auto begin = clock.now();
  const Expected<void> sent = send_weights(buffers);
  if (!sent) return tl::make_unexpected(sent.error());
  transfer_.seconds = seconds_between(begin, clock.now());
  return ControlCall::Source::kSent;
}

/// That it is not possible is no error: `transfer_` says why, and nobody asks again.
Expected<std::vector<kernels::PeerMemory*>> RemoteEngine::peer_memory() {
  using Peers = std::vector<kernels::PeerMemory*>;
  if (!config_.writes_to_peer || !transfer_.why_frames.empty()) return Peers();
  const auto answer = ask({.kind = Kind::kExportWeights}, config_.answer_limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->handles.empty()) {
    transfer_.why_frames = "it has exported no memory";
    return Peers();
  }
  Peers peers;
  try {
    for (const std::string& handle : answer->handles) {
      std::unique_ptr<kernels::PeerMemory>& peer = peers_[handle];
      if (peer == nullptr) peer = kernels::opened_gpu().open_peer_memory(handle);
      peers.push_back(peer.get());
    }
  } catch (const std::runtime_error& error) {
    transfer_.why_frames = error.what();
    return Peers();
  }
  return peers;
}

Expected<void> RemoteEngine::send_weights(const std::vector<Tensor>& buffers) {
  const auto most = static_cast<std::size_t>(config_.weight_piece_bytes);
  std::size_t total = 0, begin = 0;
  for (const Tensor& buffer : buffers) total += buffer.nbytes();
  for (const Tensor& buffer : buffers) {
    const Tensor here = buffer.cpu();  // sync: they are read here
    const std::string_view all(static_cast<const char*>(here.const_data_ptr()), here.nbytes());
    for (std::size_t offset = 0; offset < all.size(); offset += most) {
      Expected<void> sent = send_piece(
          EngineFrame::kWeights,
          to_frame(WeightPiece{
              .total_bytes = total, .offset = begin + offset, .bytes = all.substr(offset, most)}));
      if (!sent) return sent;
    }
    begin += all.size();
  }
  return {};
}

Expected<void> RemoteEngine::send_piece(EngineFrame type, std::string frame) {
  if (outbox_.post_when_room(static_cast<uint32_t>(type), std::move(frame))) return {};
  const std::lock_guard lock(mutex_);
  return lost_ ? lost_error() : failure(fmt::format("{} is lost", config_.name));
}

Expected<void> RemoteEngine::send_delta(const model::WeightDelta& delta) {
  const auto most = static_cast<std::size_t>(config_.weight_piece_bytes);
  for (const model::TensorDelta& tensor : delta.tensors) {
    const std::string_view all = tensor.bytes;
    for (std::size_t offset = 0; offset < all.size(); offset += most) {
      Expected<void> sent = send_piece(EngineFrame::kWeightDelta,
                                       to_frame(DeltaPiece{.tensor = tensor.tensor,
                                                           .form = tensor.form,
                                                           .checksum = tensor.checksum,
                                                           .total_bytes = all.size(),
                                                           .offset = offset,
                                                           .bytes = all.substr(offset, most)}));
      if (!sent) return sent;
    }
  }
  return {};
}

Expected<void> RemoteEngine::update_by(const model::WeightDelta& delta, ControlCall call) {
  const SystemClock clock;
  const auto begin = clock.now();
  call.base = delta.base;
  call.num_changed = delta.tensors.size();
  call.source = ControlCall::Source::kDeltaDirectory;
  call.directory = delta.directory.string();
  if (delta.directory.empty()) {
    call.source = ControlCall::Source::kDelta;
    Expected<void> begun = order({.kind = Kind::kBeginDelta, .base = delta.base});
    if (!begun) return begun;
    Expected<void> sent = send_delta(delta);
    if (!sent) return sent;
    transfer_.bytes = delta.num_bytes();
    transfer_.seconds = seconds_between(begin, clock.now());
  }
  return finish_update(std::move(call));
}

Expected<void> RemoteEngine::finish_update(ControlCall call) {
  const WeightVersion version = call.version;
  const auto updated = ask(std::move(call), config_.weights_limit);
  if (!updated) return tl::make_unexpected(updated.error());
  if (updated->error) return failure(fmt::format("{}: {}", config_.name, *updated->error));
  transfer_.copy_seconds = updated->copy_seconds;
  const std::lock_guard lock(mutex_);
  version_ = version;
  return {};
}

Expected<void> RemoteEngine::update_weights(const WeightUpdate& update) {
  ControlCall call{.kind = Kind::kUpdateWeights,
                   .version = update.version,
                   .epoch = config_.epoch ? config_.epoch() : 0,
                   .running = update.running,
                   .stays_paused = update.stays_paused,
                   .publication = update.publication};
  transfer_.bytes = 0;
  transfer_.why_whole.clear();
  if (const auto* directory = std::get_if<FromDirectory>(&update.source)) {
    call.source = ControlCall::Source::kDirectory;
    call.directory = directory->path.string();
  } else if (const auto* from = std::get_if<FromNetwork>(&update.source)) {
    const model::Weights& weights = from->network->trained();
    const Tensor constants_C = weights.flat_constants().cpu();  // sync: as above
    const float* first = constants_C.const_data_ptr<float>();
    call.constants.assign(first, first + constants_C.numel());
    if (from->delta != nullptr) {
      Expected<void> updated = update_by(*from->delta, call);
      if (updated || why_lost()) return updated;
      transfer_.why_whole = updated.error().message;
    }
    const std::vector<Tensor> buffers = weights.buffers().numbers();
    const Expected<ControlCall::Source> brought = bring_weights(buffers);
    if (!brought) return tl::make_unexpected(brought.error());
    call.source = *brought;
    transfer_.bytes = 0;
    for (const Tensor& buffer : buffers) transfer_.bytes += static_cast<int64_t>(buffer.nbytes());
  } else if (std::holds_alternative<Exchange>(update.source)) {
    return failure("an engine elsewhere computes with no network of this process");
  } else if (std::holds_alternative<FromTensors>(update.source)) {
    return failure("an engine elsewhere takes all tensors of the model, not some");
  }
  return finish_update(std::move(call));
}

Expected<WeightChecksums> RemoteEngine::check_weights(WeightCheck check) {
  const auto answer = ask({.kind = Kind::kCheckWeights, .check = check}, config_.weights_limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error) return failure(fmt::format("{}: {}", config_.name, *answer->error));
  return answer->checksums;
}

WeightVersion RemoteEngine::weight_version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace slime::engine
