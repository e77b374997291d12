#include "bench/generate_all.h"

#include <condition_variable>
#include <mutex>

#include "core/error.h"

namespace slime::bench {

std::vector<engine::GenerateUpdate> generate_all(engine::EngineClient& engine,
                                                 std::vector<engine::GenerateRequest> requests) {
  std::vector<engine::GenerateUpdate> results(requests.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t num_left = requests.size();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stream_interval = 0;  // nothing before the end
    engine.submit(std::move(requests[i]), [&, i](engine::GenerateUpdate update) {
      const std::lock_guard lock(mutex);
      results[i] = std::move(update);
      if (--num_left == 0) changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_left == 0; });
  for (const engine::GenerateUpdate& result : results) {
    if (result.finish->kind == engine::FinishReason::Kind::kAbort)
      throw ConfigError(result.finish->message);
  }
  return results;
}

}  // namespace slime::bench
