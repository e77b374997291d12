#pragma once

/// The far end of a RemoteEngine: an engine of this process serves one client over a connection.
///
/// Requests and aborts are read on the thread that calls serve(); control calls are carried out on
/// a thread of their own, in their order, so that a slow one (new weights) holds up no abort. Updates
/// that come while a frame is being sent go together in the next one: under load that is a frame a
/// step.

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/bounded_queue.h"
#include "engine/client.h"
#include "engine/remote/frames.h"
#include "net/frame_channel.h"
#include "net/frame_outbox.h"

namespace slime::engine {

/// Two networks of one shape: the engine computes with one of them while new weights arrive in the
/// other, and an update exchanges them.
struct TwoNetworks {
  model::Network* running = nullptr;  // the one the engine was made with
  /// Null: no weights are taken over the connection. Those that come are the whole model's, whichever
  /// slices of it the network holds.
  model::Network* second = nullptr;
  // For a client that writes their weights itself (kernels/gpu/peer_memory.h), of each of their buffers
  // (WeightBuffers::numbers); or empty.
  std::vector<std::string> running_handles, second_handles;
};

struct EngineServerConfig {
  int64_t max_open_requests = int64_t{1} << 20;
  /// Engine::last_copy_seconds() of the engine, told with each update of the weights.
  std::function<double()> last_copy_seconds;
  net::FrameOutboxConfig outbox;
  /// Where it is set a client's first frame is a greeting, and this says why it is refused; empty: it
  /// is not.
  std::function<std::string(std::string_view greeting)> why_refused = {};
  int64_t epoch = 0;  // new weights of an older one are refused
  /// What an update takes that brings no weights: those of the engine's network, which this process has
  /// changed, or another network of it.
  WeightSource in_place = InPlace{};
  /// The engine's other ranks get what comes of new weights too, frame by frame.
  std::function<void(std::string_view piece)> pass_weights_on = {};
};

/// One class because it is the state of one connection: its requests, what waits to be told, and
/// the weights that have arrived.
class EngineServer final {
 public:
  /// Owns `descriptor`, a connected stream socket. References outlive the object, which leaves
  /// `networks` as they are in the end.
  EngineServer(EngineClient& engine, int descriptor, TwoNetworks& networks,
               EngineServerConfig config = {});
  EngineServer(const EngineServer&) = delete;
  EngineServer& operator=(const EngineServer&) = delete;

  /// Until the client is gone; its requests are aborted then, and have ended when this returns.
  /// Throws net::FrameError when the client sends what is no frame of these, or is refused.
  void serve();
  /// That have come; when serve() has returned.
  int64_t num_requests() const { return num_requests_; }

  /// Tells the client what the engine does from now on. Any thread.
  void tell_activity(Activity activity);

 private:
  struct Open {
    std::optional<RequestHandle> handle;  // unset: the engine has not given it yet
  };

  void take(const net::Frame& frame);
  void take_greeting();
  void submit(RemoteRequest request);
  void abort(uint64_t number);
  void abort_everything();
  void take_weights(const WeightPiece& piece);
  Expected<void> begin_delta(uint64_t base);  // with weights_mutex_ held
  void take_delta(const DeltaPiece& piece);
  /// False where they are not as many as the model has.
  bool take_constants(const std::vector<float>& constants);
  void tell(RemoteUpdate update);
  std::string take_told();
  void carry_out_calls();
  ControlAnswer carry_out(const ControlCall& call);
  Expected<void> update_weights(const ControlCall& call);
  Expected<void> bring(const ControlCall& call);
  Expected<void> apply_delta_of(const std::filesystem::path& directory, uint64_t base);
  Expected<void> exchange_networks(const ControlCall& call);
  Expected<WeightChecksums> check_weights(WeightCheck check);
  void answer(const ControlAnswer& answer);

  EngineClient& engine_;
  TwoNetworks& networks_;  // guarded by weights_mutex_
  const EngineServerConfig config_;
  net::FrameChannel channel_;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  std::unordered_map<uint64_t, Open> open_;  // guarded by mutex_
  int64_t num_requests_ = 0;                 // guarded by mutex_
  RemoteUpdates told_;                       // guarded by mutex_; not sent yet
  /// Guards the second network's weights. Held while the engine takes them: a client sends no more
  /// before it has the answer.
  std::mutex weights_mutex_;
  int64_t epoch_ = 0;           // guarded by weights_mutex_; of the newest update
  uint64_t arrived_bytes_ = 0;  // guarded by weights_mutex_; without a gap, of new weights
  uint64_t publication_ = 0;    // guarded by weights_mutex_; of the weights that it has; 0: unknown
  /// Guarded by weights_mutex_; what changed, as far as it has come.
  struct ArrivingDelta {
    model::TensorDelta tensor;  // the one that is not whole yet
    uint64_t num_applied = 0;   // tensors
    std::string error;          // of the first that could not be applied
  };
  std::optional<ArrivingDelta> delta_;
  BoundedQueue<ControlCall> calls_;
  net::FrameOutbox outbox_;
};

}  // namespace slime::engine
