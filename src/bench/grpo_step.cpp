/// One whole step of the loop on made-up prompts and rewards (generation, training, new weights),
/// beside bench/cpu/grpo_step_peer.py.

#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/generate_all.h"
#include "bench/random_tokens.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "core/random.h"
#include "engine/engine.h"
#include "kernels/cpu/thread_pool.h"
#include "train/keep_freed_memory.h"
#include "train/trainer.h"

namespace slime::bench {
namespace {

struct GrpoOptions {
  ModelOptions model;
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 96;
  int repeats = 2;  // the best counts
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
      append_random_tokens(sample.tokens, options.prompt_tokens, vocab_size, 2,
                           g + step * options.prompts);
    }
  }
  return groups;
}

/// Completes all samples at temperature 1, none ends early.
void generate(engine::Engine& engine, const GrpoOptions& options, std::vector<Group>& groups) {
  std::vector<engine::GenerateRequest> requests;
  std::vector<Sample*> samples;
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      engine::GenerateRequest& request = requests.emplace_back();
      request.input_ids = sample.tokens;
      request.sampling.max_new_tokens = options.new_tokens;
      request.sampling.ignore_eos = true;
      request.return_logprob = true;
      samples.push_back(&sample);
    }
  }
  const auto results = generate_all(engine, std::move(requests));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = *samples[i];
    const engine::GenerateUpdate& result = results[i];
    sample.tokens.insert(sample.tokens.end(), result.output_ids.begin(), result.output_ids.end());
    sample.log_probs = {result.output_log_probs.begin(), result.output_log_probs.end()};
  }
}

struct Seconds {
  double step = 1e300, generate = 0, train = 0;
};

void measure_grpo_step(const GrpoOptions& options) {
  const SystemClock clock;
  train::keep_freed_memory();  // as `slime train` does
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
  write_json_line({{"benchmark", "grpo-step"},
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
                   {"computed_tokens", num_computed_tokens}});
}

}  // namespace

int grpo_step(const std::string& name, Arguments arguments) {
  GrpoOptions options;
  Flags flags("One GRPO step on made-up prompts and rewards: generation, training, new weights.",
              name);
  flags.model(options.model);
  flags.count("--prompts", options.prompts, "of a step");
  flags.count("--samples", options.samples, "of each prompt");
  flags.count("--prompt-tokens", options.prompt_tokens, "of each prompt");
  flags.count("--new-tokens", options.new_tokens, "of each sample");
  flags.repeats(options.repeats, "the best counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_grpo_step(options);
  return 0;
}

}  // namespace slime::bench
