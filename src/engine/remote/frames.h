#pragma once

/// Messages between a RemoteEngine and its EngineServer (carried by net/frame_channel.h).
///
///   client -> server   kGreeting  kSubmit  kAbort  kAbortPrefix  kWeights  kWeightDelta  kCall
///   server -> client   kUpdates  kAnswer  kActivity
///
/// Requests have the numbers that the client gave them. Token ids, log-probs and version runs
/// travel as columns of raw numbers. Both ends are this program; still the decoders throw
/// net::FrameError for any bytes that the encoders do not make, and what they return can be used as
/// it stands: lengths that must agree do.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.h"
#include "engine/engine_config.h"
#include "model/weight_delta.h"

namespace slime::engine {

enum class EngineFrame : uint32_t {
  kSubmit = 1,       // RemoteRequest
  kAbort = 2,        // a request's number
  kAbortPrefix = 3,  // the prefix; empty: all
  kWeights = 4,      // WeightPiece
  kCall = 5,         // ControlCall
  kUpdates = 6,      // RemoteUpdates
  kAnswer = 7,       // ControlAnswer
  kActivity = 8,     // an Activity: what the engine does from now on
  kGreeting = 9,     // what the two ends agreed on; comes first, where the server asks for it
  kWeightDelta = 10  // DeltaPiece
};

struct RemoteRequest {
  uint64_t number = 0;
  GenerateRequest request;
};
std::string to_frame(const RemoteRequest& request);
RemoteRequest remote_request_from(std::string_view frame);

/// `update.rid` does not travel: the client knows it.
struct RemoteUpdate {
  uint64_t number = 0;
  GenerateUpdate update;
};
using RemoteUpdates = std::vector<RemoteUpdate>;
std::string to_frame(const RemoteUpdates& updates);
RemoteUpdates remote_updates_from(std::string_view frame);

/// Bytes of the flat buffer of a network's weights, to be written into the server's second network.
struct WeightPiece {
  uint64_t total_bytes = 0;  // of the buffer
  uint64_t offset = 0;       // 0: an update begins
  std::string_view bytes;    // of the frame
};
std::string to_frame(const WeightPiece& piece);
WeightPiece weight_piece_from(std::string_view frame);

/// Bytes of what changed in one tensor (model/weight_delta.h), for the server's second network.
struct DeltaPiece {
  uint32_t tensor = 0;
  model::TensorDelta::Form form = model::TensorDelta::Form::kWhole;
  uint64_t checksum = 0;
  uint64_t total_bytes = 0;  // of the tensor's change; at least one
  uint64_t offset = 0;
  std::string_view bytes;  // of the frame
};
std::string to_frame(const DeltaPiece& piece);
DeltaPiece delta_piece_from(std::string_view frame);

/// A call that waits for an answer. Answers come in the order of the calls, but for kLoad, which
/// waits for nobody.
struct ControlCall {
  enum class Kind : uint8_t {
    kPause,
    kResume,
    kFlushCache,
    kSleep,
    kWake,
    kUpdateWeights,
    kLoad,
    kExportWeights,  // the answer has the handles of the second network's weights
    kBeginDelta,     // pieces of what changed since `base` follow; an error: the server has others
    kCheckWeights    // the answer has checksums
  };
  /// kUpdateWeights: where the weights are. kWritten: in the second network, by the client's own hand.
  /// kDelta: in the second network, from `base` and the pieces of `num_changed` tensors.
  /// kDeltaDirectory: those pieces are in a file.
  enum class Source : uint8_t { kInPlace, kDirectory, kSent, kWritten, kDelta, kDeltaDirectory };
  uint64_t number = 0;
  Kind kind = Kind::kPause;
  PauseMode pause_mode = PauseMode::kInPlace;
  WeightVersion version = 0;
  int64_t epoch = 0;
  Source source = Source::kInPlace;
  std::string directory;
  std::vector<float> constants;  // kSent: Weights::flat_constants()
  RunningRequests running = RunningRequests::kRecompute;
  bool stays_paused = false;
  uint64_t publication = 0;  // kUpdateWeights: what the server has then
  uint64_t base = 0;         // a publication
  uint64_t num_changed = 0;
  WeightCheck check = WeightCheck::kChecksum;
  bool operator==(const ControlCall&) const = default;
};
std::string to_frame(const ControlCall& call);
ControlCall control_call_from(std::string_view frame);

struct ControlAnswer {
  uint64_t number = 0;
  std::optional<std::string> error;
  bool is_flushed = false;  // of kFlushCache
  EngineLoad load;          // of kLoad
  /// Of kUpdateWeights: how long the engine computed nothing because weights were copied.
  double copy_seconds = 0;
  /// Of kExportWeights (kernels/gpu/peer_memory.h), of each of WeightBuffers::numbers(); empty: they come
  /// as frames.
  std::vector<std::string> handles;
  WeightChecksums checksums;  // of kCheckWeights
};
std::string to_frame(const ControlAnswer& answer);
ControlAnswer control_answer_from(std::string_view frame);

std::string activity_frame(Activity activity);
Activity activity_from(std::string_view frame);

std::string number_frame(uint64_t number);
uint64_t number_from(std::string_view frame);

}  // namespace slime::engine
