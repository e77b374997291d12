#pragma once

/// Frames between a trainer and an engine that outlives it, before requests come (roles/kept_engine.h).
///
///   kStart, kAttach  -> kReady, and the connection is that of a RemoteEngine from here on
///   kEnd             -> kEnds, and the process ends

#include <cstdint>
#include <string>
#include <string_view>

#include "core/sample.h"
#include "roles/rank_tasks.h"

namespace slime::roles {

enum class SessionFrame : uint32_t {
  kStart = 1,  // EngineStart: the process becomes an engine
  kAttach,     // it is one
  kReady,      // KeptEngineState
  kEnd,
  kEnds,
  kRefused,  // why
};

/// An engine that has had a trainer.
struct KeptEngineState {
  EngineReady ready;
  WeightVersion version = 0;
  uint64_t checksum = 0;  // combined() of its weights
  int64_t process = 0;
};

std::string to_text(const KeptEngineState& state);
/// Throws ConfigError for a text of another form.
KeptEngineState kept_engine_state_from(std::string_view text);

}  // namespace slime::roles
