#include "acceptance/engine_steps.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"

namespace slime::acceptance {
namespace {

engine::GenerateRequest request_of(int64_t index, int64_t vocab_size, int64_t new_tokens) {
  engine::GenerateRequest request;
  const int64_t length = 5 + 37 * index % 150;
  for (int64_t i = 0; i < length; ++i)
    request.input_ids.push_back(
        static_cast<TokenId>(uniform(7, static_cast<uint64_t>(index), static_cast<uint64_t>(i)) *
                             static_cast<double>(vocab_size)));
  request.sampling.max_new_tokens = new_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.return_logprob = true;
  request.stream_interval = 0;  // one update, at the end
  return request;
}

bool are_equal(const Answer& a, const Answer& b) {
  return a.tokens == b.tokens && a.log_probs.size() == b.log_probs.size() &&
         std::memcmp(a.log_probs.data(), b.log_probs.data(), a.log_probs.size() * sizeof(float)) ==
             0;
}

}  // namespace

std::vector<Answer> greedy_answers(model::Network& network, bool records_steps, int64_t prompts,
                                   int64_t new_tokens) {
  engine::EngineConfig config;
  config.kv_cache_bytes = int64_t{64} << 20;
  config.enable_prefix_cache = false;
  config.records_steps = records_steps;
  const SystemClock clock;
  engine::Engine engine(network, config, clock);
  std::vector<engine::GenerateUpdate> updates(static_cast<std::size_t>(prompts));
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_left = prompts;
  for (int64_t i = 0; i < prompts; ++i) {
    engine.submit(request_of(i, network.config().vocab_size, new_tokens),
                  [&, i](engine::GenerateUpdate update) {
                    const std::lock_guard lock(mutex);
                    updates[static_cast<std::size_t>(i)] = std::move(update);
                    if (--num_left == 0) changed.notify_one();
                  });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_left == 0; });
  std::vector<Answer> answers;
  for (engine::GenerateUpdate& update : updates) {
    if (update.finish->kind == engine::FinishReason::Kind::kAbort)
      throw ConfigError(update.finish->message);
    answers.push_back({std::move(update.output_ids), std::move(update.output_log_probs)});
  }
  return answers;
}

int64_t answers_that_differ(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  check(a.size() == b.size(), "the same prompts were answered twice");
  int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += are_equal(a[i], b[i]) ? 0 : 1;
  return count;
}

}  // namespace slime::acceptance
