#pragma once

/// Sandboxes for another process: requests and answers as JSON objects, one a line (docs/sandbox.md has
/// each field). `slime sandbox --serve` speaks it on its standard input and output.
///
///   {"id": 1, "do": "run", "language": "python", "code": "print(6 * 7)"}
///   {"id": 1, "ending": "exited", "code": 0, "output": "42\n", "error": "", "seconds": 0.02, ...}
///
/// `run` has a sandbox of its own that is gone when it answers. `open` makes one that stays, for
/// `exec`, `write` and `read`, until `close`, or until the service ends.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/json.h"
#include "sandbox/sandbox.h"

namespace slime::sandbox {

/// Reads "limits" and "readable" of a request into `usual`. Throws ConfigError.
SandboxConfig config_of(const json::object& request, SandboxConfig usual);

/// Fields of an outcome in an answer; what is no UTF-8 in its outputs becomes U+FFFD.
json::object to_json(const Outcome& outcome);

class Service final {
 public:
  static constexpr std::size_t kMostSandboxes = 256;  // open at the same time

  /// What requests do not say otherwise.
  explicit Service(SandboxConfig usual) : usual_(std::move(usual)) {}

  /// The answer to one request; any thread. It has the request's "id", and "problem" where the request
  /// could not be done at all.
  json::object answer(const json::object& request);

 private:
  json::object run(const json::object& request);
  json::object open(const json::object& request);
  json::object close(const json::object& request);
  json::object exec(const json::object& request);
  json::object write(const json::object& request);
  json::object read(const json::object& request);
  std::shared_ptr<Sandbox> sandbox_of(const json::object& request);

  const SandboxConfig usual_;
  std::mutex mutex_;
  // Guarded by mutex_. A request that runs keeps its sandbox alive.
  std::map<int64_t, std::shared_ptr<Sandbox>> open_;
  int64_t next_ = 1;
};

}  // namespace slime::sandbox
