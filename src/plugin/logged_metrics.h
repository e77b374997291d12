#pragma once

/// Numbers that users' functions log, and the durations of their spans, until the loop takes them for
/// the metrics of its step (docs/plugin_protocol.md, question `log`).

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "core/json.h"
#include "report/metrics.h"

namespace slime::plugin {

/// Any thread.
class LoggedMetrics {
 public:
  /// `metrics` {name: number}: the last value of a name counts. `spans` {name: [count, seconds, the longest]}
  /// are added up. Throws net::FrameError, and keeps nothing, for anything else.
  void add(const json::object& arguments);

  /// Since the last call. A span is rollout/trace/NAME/count, /mean_seconds and /max_seconds.
  report::Metrics take();

  /// What `call` logs, which is of something else than the step under way. Spans stay the step's.
  report::Metrics logged_by(const std::function<void()>& call);

 private:
  struct Span {
    double count = 0, seconds = 0, longest = 0;
  };

  std::mutex mutex_;
  report::Metrics metrics_;            // guarded by mutex_
  std::map<std::string, Span> spans_;  // guarded by mutex_
};

}  // namespace slime::plugin
