#include "cli/bench_grpo.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "cli/bench_model.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/random.h"
#include "engine/engine.h"
#include "kernels/cpu/thread_pool.h"
#include "train/trainer.h"

namespace slime::cli {
namespace {

struct GrpoOptions {
  BenchModel model;
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 96;
  int repeats = 2;
};

/// Groups of samples with made-up prompts and rewards, still without responses.
std::vector<Group> made_up_groups(const GrpoOptions& options, int64_t vocab_size, int step) {
  std::vector<Group> groups(options.prompts);
  for (int64_t g = 0; g < options.prompts; ++g) {
    groups[g].ordinal = g;
    groups[g].samples.resize(options.samples);
    for (int64_t i = 0; i < options.samples; ++i) {
      Sample& sample = groups[g].samples[i];
      sample.ordinal = g * options.samples + i;
      sample.group = g;
      sample.index_in_group = i;
      sample.prompt_length = options.prompt_tokens;
      sample.status = Status::kCompleted;
      sample.reward =
          uniform(3, static_cast<uint64_t>(sample.ordinal), static_cast<uint64_t>(step));
      for (int64_t t = 0; t < options.prompt_tokens; ++t) {
        const double draw =
            uniform(2, static_cast<uint64_t>(g + step * options.prompts), static_cast<uint64_t>(t));
        sample.tokens.push_back(static_cast<TokenId>(draw * static_cast<double>(vocab_size)));
      }
    }
  }
  return groups;
}

/// Completes all samples at temperature 1, none ends early.
void generate(engine::Engine& engine, const GrpoOptions& options, std::vector<Group>& groups) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t running = options.prompts * options.samples;
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      engine::GenerateRequest request;
      request.input_ids = sample.tokens;
      request.sampling.max_new_tokens = options.new_tokens;
      request.sampling.ignore_eos = true;
      request.return_logprob = true;
      request.stream_interval = 0;
      engine.submit(std::move(request), [&](engine::GenerateUpdate update) {
        const std::lock_guard lock(mutex);
        sample.tokens.insert(sample.tokens.end(), update.output_ids.begin(),
                             update.output_ids.end());
        sample.log_probs.insert(sample.log_probs.end(), update.output_log_probs.begin(),
                                update.output_log_probs.end());
        if (update.finish.has_value() && --running == 0) changed.notify_one();
      });
    }
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return running == 0; });
}

struct Seconds {
  double step = 1e300, generate = 0, train = 0;
};

json::object measure(const GrpoOptions& options) {
  const SystemClock clock;
  const auto network = options.model.load();
  train::TrainConfig config;
  config.lr = {.lr = 1e-6, .style = train::DecayStyle::kConstant};
  config.batching.global_batch_size = options.prompts * options.samples;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 4096;
  train::Trainer trainer(*network, config, clock);
  engine::EngineConfig engine_config;
  engine_config.max_running_requests = options.prompts * options.samples;
  engine::Engine engine(*network, engine_config, clock);

  Seconds best;
  int64_t num_computed_tokens = 0;
  for (int i = 0; i <= options.repeats; ++i) {  // the first allocates, and prepares the kernels
    const auto start = clock.now();
    std::vector<Group> groups = made_up_groups(options, network->config().vocab_size, i);
    generate(engine, options, groups);
    const auto generated = clock.now();
    engine::or_throw(engine.pause(engine::PauseMode::kInPlace));
    num_computed_tokens = trainer.train(train::make_train_batch(groups, {})).num_computed_tokens;
    engine::or_throw(engine.update_weights({.version = i + 1}));
    engine::or_throw(engine.resume());
    const auto end = clock.now();
    const Seconds now{seconds_between(start, end), seconds_between(start, generated),
                      seconds_between(generated, end)};
    if (i > 0 && now.step < best.step) best = now;
  }
  const auto new_tokens =
      static_cast<double>(options.prompts * options.samples * options.new_tokens);
  return {{"benchmark", "grpo-step"},
          {"dtype", options.model.dtype},
          {"threads", kernels::cpu::num_threads()},
          {"prompts", options.prompts},
          {"samples", options.samples},
          {"prompt_tokens", options.prompt_tokens},
          {"new_tokens", options.new_tokens},
          {"step_seconds", best.step},
          {"generate_seconds", best.generate},
          {"train_seconds", best.train},
          {"generated_tokens_per_second", new_tokens / best.generate},
          {"computed_tokens", num_computed_tokens}};
}

}  // namespace

int bench_grpo_step(std::span<const std::string> arguments) {
  GrpoOptions options;
  CLI::App app("One GRPO step on made-up prompts and rewards: generation, training, new weights.",
               "slime bench grpo-step");
  options.model.add_options(app);
  const auto count = [&](const char* name, int64_t& value, const char* text) {
    app.add_option(name, value, text)->capture_default_str()->check(CLI::PositiveNumber);
  };
  count("--prompts", options.prompts, "of a step");
  count("--samples", options.samples, "of each prompt");
  count("--prompt-tokens", options.prompt_tokens, "of each prompt");
  count("--new-tokens", options.new_tokens, "of each sample");
  app.add_option("--repeats", options.repeats, "the best counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  fmt::print("{}\n", json::serialize(measure(options)));
  return 0;
}

}  // namespace slime::cli
