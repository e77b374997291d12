#include "bench/measurements.h"

#include <array>

namespace slime::bench {

// Each in the file of its name, but for those with another one beside them.
int adapter_updates(const std::string& name, Arguments arguments);
int agents(const std::string& name, Arguments arguments);
int algo(const std::string& name, Arguments arguments);
int april(const std::string& name, Arguments arguments);  // april_measurement.cpp
int data(const std::string& name, Arguments arguments);
int decode_attention(const std::string& name, Arguments arguments);
int decode_delta(const std::string& name, Arguments arguments);
int engine_alone(const std::string& name, Arguments arguments);   // engine.cpp
int engine_counts(const std::string& name, Arguments arguments);  // engines_apart.cpp
int first_step(const std::string& name, Arguments arguments);     // train_command.cpp
int gpu_train_step(const std::string& name, Arguments arguments);
int gpu_workloads(const std::string& name, Arguments arguments);
int grammar(const std::string& name, Arguments arguments);
int grpo_command(const std::string& name, Arguments arguments);  // train_command.cpp
int grpo_step(const std::string& name, Arguments arguments);
int hand_over(const std::string& name, Arguments arguments);      // colocation.cpp
int kernels_alone(const std::string& name, Arguments arguments);  // kernels.cpp
int made_up_model(const std::string& name, Arguments arguments);  // made_up_directory.cpp
int plugin_calls(const std::string& name, Arguments arguments);
int prompt_scores(const std::string& name, Arguments arguments);
int rank_collectives(const std::string& name, Arguments arguments);
int reshard(const std::string& name, Arguments arguments);
int server_streams(const std::string& name, Arguments arguments);
int sleep_wake(const std::string& name, Arguments arguments);  // colocation.cpp
int start(const std::string& name, Arguments arguments);
int train_forms(const std::string& name, Arguments arguments);  // train_command.cpp
int train_step(const std::string& name, Arguments arguments);
int update_pause(const std::string& name, Arguments arguments);

std::span<const Measurement> measurements() {
  static constexpr auto kMeasurements = std::to_array<Measurement>({
      {"adapter-updates", "how long a new adapter takes until requests take it", adapter_updates},
      {"agents", "agents whose prompts meet requests that decode: tokens per second, waits",
       agents},
      {"algo", "loss and gradient on a million tokens, next to the speed of memory", algo},
      {"april", "steps with a tail of long responses: synchronous, and with partial rollouts",
       april},
      {"data", "loading a prompt file: rows per second, memory", data},
      {"decode-attention", "attention of one layer in a decode step", decode_attention},
      {"decode-delta", "gated delta rule of one layer in a step", decode_delta},
      {"engine", "generation: tokens per second, step times, rates", engine_alone},
      {"engines", "one engine and several, each on a GPU of its own", engine_counts},
      {"first-step", "`slime train` to the end of its first optimizer step", first_step},
      {"gpu-train-step", "a training step on one GPU or several", gpu_train_step},
      {"grammar", "constrained decoding: compiling grammars, masks of tokens", grammar},
      {"grpo-command", "steps of the command `slime train --device cuda`", grpo_command},
      {"grpo-step", "one step of the loop: generate, train, hand the weights over", grpo_step},
      {"hand-over", "new weights to the engine of the same GPU", hand_over},
      {"kernels", "products of the decoder; --device cuda: every kernel of a GPU", kernels_alone},
      {"made-up-model", "writes a model directory, for commands that are measured", made_up_model},
      {"plugin-calls", "trivial rewards of a user's Python function", plugin_calls},
      {"prompt-scores", "log-probs of prompts: prompt tokens per second", prompt_scores},
      {"rank-collectives", "sums of small tensors over GPUs, next to NCCL", rank_collectives},
      {"reshard", "new weights from parts of a model to engines on the same GPUs", reshard},
      {"server-streams", "streams of a server under load: gaps, refusals, memory", server_streams},
      {"sleep-wake", "the KV cache gives its memory back and takes it again", sleep_wake},
      {"start", "from the start of the process to the first token on the GPU", start},
      {"train-forms", "synchronous and asynchronous training: steps per hour, idle time",
       train_forms},
      {"train-step", "one training step on made-up tokens on the CPU", train_step},
      {"update-pause", "how long generation pauses for new weights", update_pause},
      {"workloads", "workloads that rollout engines are compared on", gpu_workloads},
  });
  return kMeasurements;
}

}  // namespace slime::bench
