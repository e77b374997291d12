#pragma once

/// An engine in another process, as an EngineClient: the near end of a connection whose far end is
/// an EngineServer (engine/remote/engine_server.h).
///
/// Calls that ask for nothing (submit, abort) leave as frames and do not wait; the others wait for
/// their answers. When the connection is lost, or an answer does not come in time, the engine is
/// lost: every open request ends with kEngineLost and what it was told, calls return an error, and
/// nothing changes that any more.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "engine/client.h"
#include "engine/remote/frames.h"
#include "kernels/gpu/peer_memory.h"
#include "net/frame_channel.h"
#include "net/frame_outbox.h"

namespace slime::engine {

struct RemoteEngineConfig {
  std::string name = "the engine";                   // in messages: "engine 2 (process 4711)"
  std::chrono::milliseconds answer_limit{60'000};    // of a control call: some steps of the engine
  std::chrono::milliseconds weights_limit{600'000};  // of new weights, which it may have to read
  int64_t weight_piece_bytes = int64_t{16} << 20;    // of one frame of weights
  /// The GPU of this process is open, and may write new weights into the far end's memory itself,
  /// where that is possible.
  bool writes_to_peer = false;
  /// What the engine does from now on, on the thread that reads the connection.
  std::function<void(Activity)> on_activity = {};
  std::string greeting = {};  // the first frame, for a server that asks for one; empty: none
  /// Of the run, asked with each update of the weights; it grows when trainers begin again from older
  /// weights, whose versions come a second time then. The far end refuses updates of an older one than
  /// it has had. Any thread.
  std::function<int64_t()> epoch = {};
  net::FrameOutboxConfig outbox;
};

/// One class because it is the state of one connection: what is open on it, and whether it is lost.
class RemoteEngine final : public EngineClient {
 public:
  /// Owns `descriptor`, a connected stream socket.
  RemoteEngine(int descriptor, RemoteEngineConfig config);
  /// Unfinished requests end with kShuttingDown.
  ~RemoteEngine() override;
  RemoteEngine(const RemoteEngine&) = delete;
  RemoteEngine& operator=(const RemoteEngine&) = delete;

  /// Updates come on the thread that reads the connection, or, when the engine is lost already, on
  /// the caller's. Control calls made from there do not wait: they return at once, load() with an
  /// error and flush_cache() with false.
  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }
  Expected<void> pause(PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override;
  Expected<void> sleep() override;
  Expected<void> wake() override;
  /// FromNetwork: the weights, numbers or codes as the far end has them, are written into the far end's
  /// second network, from device to device, or sent, in pieces that leave room for other frames between
  /// them; the engine goes on meanwhile. Or what changed is, if the far end has what it begins with. FromDirectory: a path that the far end reads. InPlace: whoever
  /// shares the memory of the far end has changed it. Updates come one at a time.
  Expected<void> update_weights(const WeightUpdate& update) override;
  Expected<WeightChecksums> check_weights(WeightCheck check) override;
  WeightVersion weight_version() const override;
  Expected<EngineLoad> load() const override;

  /// How the last new weights came; not during an update.
  struct Transfer {
    bool is_direct = false;   // device to device
    std::string why_frames;   // where writes_to_peer was asked for and is not possible
    double seconds = 0;       // until they were all in the second network
    double copy_seconds = 0;  // during which the engine computed nothing
    int64_t bytes = 0;        // of weights, over the connection or into the other device
    std::string why_whole;    // what changed was offered, and all was sent
  };
  const Transfer& last_transfer() const { return transfer_; }

  /// Gives the engine up; returns at once. Any thread.
  void disconnect(const std::string& why) const { lose(FinishReason::Cause::kEngineLost, why); }
  /// Why it is lost; nothing: it is not. Any thread.
  std::optional<std::string> why_lost() const {
    const std::lock_guard lock(mutex_);
    return lost_ ? std::optional(lost_->message) : std::nullopt;
  }

 private:
  struct Open {
    std::string rid;
    int64_t prompt_tokens = 0;
    OnUpdate on_update;
  };

  void read();
  void take(const net::Frame& frame);
  void take_updates(std::string_view payload);
  /// The first reason counts. Ends the connection; the reading thread ends the requests then.
  void lose(FinishReason::Cause cause, const std::string& why) const;
  void end_all();
  Expected<void> send(EngineFrame type, std::string payload);
  Expected<ControlAnswer> ask(ControlCall call, std::chrono::milliseconds limit) const;
  Expected<void> order(ControlCall call) const;
  /// Into the far end's second network: kWritten or kSent.
  Expected<ControlCall::Source> bring_weights(const std::vector<Tensor>& buffers);
  /// Of the buffers of the far end's second network; none: it cannot be written to.
  Expected<std::vector<kernels::PeerMemory*>> peer_memory();
  Expected<void> send_weights(const std::vector<Tensor>& buffers);
  /// Brings what changed and has the far end go on with it.
  Expected<void> update_by(const model::WeightDelta& delta, ControlCall call);
  Expected<void> send_delta(const model::WeightDelta& delta);
  Expected<void> send_piece(EngineFrame type, std::string frame);
  Expected<void> finish_update(ControlCall call);
  tl::unexpected<Error> lost_error() const;  // with mutex_ held
  bool is_own_thread() const { return std::this_thread::get_id() == reader_.get_id(); }

  const RemoteEngineConfig config_;
  mutable net::FrameChannel channel_;
  mutable std::mutex mutex_;
  mutable std::optional<FinishReason> lost_;                                 // guarded by mutex_
  std::unordered_map<uint64_t, Open> open_;                                  // guarded by mutex_
  mutable std::map<uint64_t, std::promise<Expected<ControlAnswer>>> asked_;  // guarded by mutex_
  mutable uint64_t num_frames_ = 0;  // guarded by mutex_; numbers of requests and of calls
  WeightVersion version_ = 0;        // guarded by mutex_
  // Whoever updates weights, one at a time.
  std::map<std::string, std::unique_ptr<kernels::PeerMemory>> peers_;  // by their handles
  Transfer transfer_;
  mutable net::FrameOutbox outbox_;
  std::thread reader_;  // last: it uses everything above
};

}  // namespace slime::engine
