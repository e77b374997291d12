#pragma once

/// Client of many streamed chats at once, on one thread that does nothing else: what it costs is not taken
/// from a server on the same cores. Times are those at which the kernel had the bytes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slime::bench {

struct StreamPlan {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;
  std::string request;  // head and body, sent again when its answer has ended
  int64_t num_streams = 512;
  double warm_up_seconds = 5;
  double seconds = 60;
};

/// Of the time after the warm-up.
struct StreamCounts {
  std::map<int, int64_t> statuses;  // from the beginning on
  int64_t num_tokens = 0;           // events with a choice
  int64_t num_answers = 0;          // to their end
  int64_t num_lost = 0;             // connections that ended before the time was over
  int64_t num_together = 0;         // tokens that came with others in one piece
  /// Seconds between two tokens of one answer; of tokens that came together, their share.
  std::vector<float> gaps;
  std::vector<float> first_tokens;  // seconds from a request to its first token
};

/// Told once a second, and when the warm-up is over.
class StreamWatcher {
 public:
  virtual ~StreamWatcher() = default;
  virtual void begin() = 0;
  virtual void tick() = 0;
};

/// Runs to the end of the last answer that had begun in time. Throws ConfigError without a server.
StreamCounts run_streams(const StreamPlan& plan, StreamWatcher& watcher);

}  // namespace slime::bench
