#pragma once

/// Requests whose constraint is being made: they are not the engine's yet.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/expected.h"
#include "engine/admission.h"
#include "engine/token_constraint.h"

namespace slime::engine {

/// Any thread. Held by a shared pointer: constraints that are still made keep it, whoever else is gone.
class ConstraintQueue final : public std::enable_shared_from_this<ConstraintQueue> {
 public:
  /// Tells the engine's thread that take() has the request; false: it has no room for the message.
  /// Called under a lock: does little.
  using TellReady = std::function<bool(RequestHandle)>;
  ConstraintQueue(std::size_t most, TellReady tell_ready);

  /// False when there are as many as there may be; `submission` is untouched then. A request whose
  /// constraint cannot be made is refused with the reason.
  bool add(Submission& submission, ConstraintSource& source);

  /// A request that is ready, once; nothing: it has ended meanwhile.
  std::optional<Submission> take(RequestHandle handle);

  /// Ends those of whom `matches` says so.
  void end_if(const std::function<bool(const Submission&)>& matches, const FinishReason& reason);

  /// Ends all, and takes no more.
  void close(const FinishReason& reason);

  int64_t size() const;

 private:
  void made(RequestHandle handle, ConstraintSource::MadeConstraint constraint);

  const std::size_t most_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  TellReady tell_ready_;  // null: closed
  std::map<RequestHandle, Submission> waiting_;
};

}  // namespace slime::engine
