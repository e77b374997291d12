#pragma once

/// Questions of users' code to the program while it runs: a score by a rule, groups of the data
/// source.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/expected.h"
#include "plugin/payload.h"

namespace slime::plugin {

struct Question {
  std::string what;        // "score", "get_samples"
  json::object arguments;  // docs/plugin_protocol.md, "Questions"
  Columns columns;         // of the whole frame
};

struct ReplyValue {
  json::value value;
  Columns columns = {};
};

/// The value, or why there is none. Called once, on any thread; the host may be gone by then.
using ReplyFn = std::function<void(Expected<ReplyValue>)>;

struct Reply {
  int64_t process = 0;  // of the host that asked: a later one has asked nothing
  int64_t id = 0;
  Expected<ReplyValue> value;
};

/// Replies on their way to the thread of a host, which may end before whoever answers does.
class Replies {
 public:
  /// `wake`: an event's descriptor; this keeps one of its own.
  explicit Replies(int wake);
  ~Replies();
  Replies(const Replies&) = delete;
  Replies& operator=(const Replies&) = delete;

  /// Any thread.
  void add(Reply reply);
  std::vector<Reply> take();

 private:
  int wake_;
  std::mutex mutex_;
  std::vector<Reply> waiting_;  // guarded by mutex_
};

}  // namespace slime::plugin
