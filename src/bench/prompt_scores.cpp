/// Log-probs of prompts, as a teacher of a distillation is asked for them: prompt tokens per second, next
/// to the same prompts without.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/generate_all.h"
#include "bench/harness.h"
#include "bench/random_tokens.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

struct PromptScoresOptions {
  std::string name;
  ShapeOptions shape;
  std::string device = "cuda";
  int64_t prompts = 64;
  int64_t prompt_tokens = 2048;  // of each
  int64_t num_top = 0;
  int64_t max_prefill_tokens = 8192;
  bool is_exact = false;  // in training arithmetic (docs/exact.md)
  int repeats = 2;
};

/// With `scores` all positions, and no token is sampled; without, one token of each prompt is.
double seconds_of(engine::Engine& engine, const PromptScoresOptions& options, int64_t vocab_size,
                  bool scores) {
  std::vector<engine::GenerateRequest> requests(static_cast<std::size_t>(options.prompts));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    append_random_tokens(requests[i].input_ids, options.prompt_tokens, vocab_size, 7,
                         static_cast<int64_t>(i));
    requests[i].sampling.max_new_tokens = scores ? 0 : 1;
    requests[i].sampling.ignore_eos = true;
    requests[i].return_logprob = scores;
    requests[i].logprob_start_len = scores ? 0 : -1;
    requests[i].top_logprobs_num = scores ? options.num_top : 0;
  }
  engine::or_throw(engine.flush_cache());
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto results = generate_all(engine, std::move(requests));
  const double seconds = seconds_between(start, clock.now());
  if (!scores) return seconds;
  for (const engine::GenerateUpdate& result : results)
    if (static_cast<int64_t>(result.input_log_probs.size()) != options.prompt_tokens)
      throw ConfigError("prompt-scores: the engine did not score each token of a prompt");
  return seconds;
}

void measure_prompt_scores(const PromptScoresOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  const auto network = make_up_network_on(options.device, shape);
  const SystemClock clock;
  engine::EngineConfig config;
  config.max_running_requests = std::max<int64_t>(options.prompts, 1);
  config.max_prefill_tokens = options.max_prefill_tokens;
  config.verify_tokens = options.is_exact ? 1 : 0;  // prompts of engines that verify
  config.context_length = options.prompt_tokens + 1;
  config.kv_cache_bytes = cache_bytes_on(options.device);
  engine::Engine engine(*network, config, clock);
  const auto best_of = [&](bool scores) {
    seconds_of(engine, options, shape.vocab_size, scores);  // products are measured
    double best = 1e300;
    for (int repeat = 0; repeat < options.repeats; ++repeat)
      best = std::min(best, seconds_of(engine, options, shape.vocab_size, scores));
    return best;
  };
  const double plain = best_of(false), scored = best_of(true);
  const auto tokens = static_cast<double>(options.prompts * options.prompt_tokens);
  write_json_line({{"name", options.name},
                   {"value", tokens / scored},
                   {"unit", "prompt tokens per second"},
                   {"without_scores", tokens / plain},
                   {"seconds", scored},
                   {"prompts", options.prompts},
                   {"prompt_tokens", options.prompt_tokens},
                   {"top_logprobs", options.num_top},
                   {"exact", options.is_exact},
                   {"model", options.shape.model},
                   {"device", options.device == "cuda" ? kernels::opened_gpu().description()
                                                       : std::string("cpu")}});
}

}  // namespace

int prompt_scores(const std::string& name, Arguments arguments) {
  PromptScoresOptions options;
  options.name = name;
  Flags flags("Log-probs of prompts.", name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags.count("--prompts", options.prompts, "At once");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each");
  flags.range("--top-logprobs", options.num_top, 0, 1000, "Best tokens of each position");
  flags.prefill(options.max_prefill_tokens);
  flags.add_flag("--exact", options.is_exact, "Prompts in the order of sums of --true-on-policy");
  flags.repeats(options.repeats, "The fastest counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_prompt_scores(options);
  return 0;
}

}  // namespace slime::bench
