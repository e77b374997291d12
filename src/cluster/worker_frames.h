#pragma once

/// Messages between the controller and its workers (net/frame_channel.h). Tasks and answers are the
/// loop's (roles/rank_tasks.h); the rest is for supervision.
///
///   controller -> worker   kTask  kStop
///   worker -> controller   kGreeting, and then  kAnswer  kHeartbeat  kFailure

#include <chrono>
#include <cstdint>
#include <string>

namespace slime::cluster {

enum class WorkerFrame : uint32_t {
  kTask = 1,
  kStop = 2,  // the worker ends with exit code 0
  kAnswer = 3,
  kHeartbeat = 4,  // Progress
  kFailure = 5,    // one letter of FailureCause, then a sentence
  kGreeting = 6,   // cluster/run_identity.h
};

enum class FailureCause : char {
  kOwn = 'o',            // the worker cannot go on
  kPeers = 'p',          // it could not reach the others: one of them is to blame
  kConfiguration = 'c',  // what the user gave cannot be: another process would say the same
};

/// Where a worker is: what it reports in heartbeats, so that a person learns which rank the others
/// wait for.
struct Progress {
  int64_t num_collectives = 0;  // begun
  std::string doing;            // "summing the gradients"
};

constexpr std::chrono::milliseconds kHeartbeatPeriod{250};

}  // namespace slime::cluster
