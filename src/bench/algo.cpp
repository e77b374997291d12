/// The policy loss and its gradient on a million tokens, against the speed of memory.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "algo/loss.h"
#include "algo/packed.h"
#include "bench/flags.h"
#include "core/best_seconds.h"
#include "core/json_lines.h"

namespace slime::bench {
namespace {

struct AlgoOptions {
  int64_t tokens = 1 << 20;
  int64_t response_length = 1024;
  int64_t micro_batch_tokens = 1 << 14;  // of one call of the loss
  int repeats = 5;
};

/// Bytes per second of a copy that no cache holds: read and write.
double copy_bandwidth() {
  const Tensor from = at::ones({1 << 26});
  Tensor to = at::empty_like(from);
  const double seconds = best_seconds(5, [&] { to.copy_(from); });
  return 2.0 * static_cast<double>(from.nbytes()) / seconds;
}

algo::PolicyColumns made_up_columns(int64_t num_tokens, int64_t response_length) {
  algo::PolicyColumns in;
  const int64_t responses = num_tokens / response_length;
  in.starts = algo::make_starts(std::vector<int64_t>(responses, response_length));
  const int64_t tokens = responses * response_length;
  in.logprob_T = -at::rand({tokens});
  in.old_T = in.logprob_T + 0.1 * at::randn({tokens});
  in.engine_T = in.old_T + 0.01 * at::randn({tokens});
  in.ref_T = in.old_T.clone();
  in.entropy_T = at::rand({tokens});
  in.advantage_T = at::randn({tokens});
  in.trained_T = at::ones({tokens}, at::kBool);
  in.weight_T = at::full({tokens}, 1.0 / static_cast<double>(response_length));
  in.logprob_T.requires_grad_(true);
  return in;
}

void measure_algo(const AlgoOptions& options) {
  const int64_t tokens = options.tokens, micro_batch_tokens = options.micro_batch_tokens;
  const double bandwidth = copy_bandwidth();
  // What has to move at least: six float columns in, the gradient out, and it comes back once.
  const double least_bytes = static_cast<double>(tokens) * 4 * 8;
  const at::AutoGradMode grad_mode(true);
  const std::pair<const char*, algo::PolicyObjective> objectives[] = {
      {"grpo", algo::TokenClip{}},
      {"gspo", algo::SequenceClip{}},
      {"cispo", algo::ClippedWeight{}}};
  for (const auto& [name, objective] : objectives) {
    algo::PolicyLossConfig config;
    config.objective = objective;
    config.kl_loss = algo::KlLoss{algo::KlType::kLowVar, 0.01, false};
    config.correction = algo::TruncatedImportance{};
    std::vector<algo::PolicyColumns> micro_batches;
    for (int64_t begin = 0; begin < tokens; begin += micro_batch_tokens) {
      const int64_t size = std::min(micro_batch_tokens, tokens - begin);
      micro_batches.push_back(made_up_columns(size, std::min(options.response_length, size)));
    }
    const double seconds = best_seconds(options.repeats, [&] {
      for (const algo::PolicyColumns& in : micro_batches) {
        in.logprob_T.mutable_grad() = Tensor();
        algo::policy_loss(config, in).sum.backward();
      }
    });
    write_json_line({{"benchmark", "algo"},
                     {"objective", name},
                     {"tokens", tokens},
                     {"micro_batch_tokens", micro_batch_tokens},
                     {"milliseconds", seconds * 1e3},
                     {"million_tokens_per_second", static_cast<double>(tokens) / seconds / 1e6},
                     {"roofline_milliseconds", least_bytes / bandwidth * 1e3},
                     {"copy_gb_per_second", bandwidth / 1e9},
                     {"share_of_roofline", least_bytes / bandwidth / seconds}});
  }
}

}  // namespace

int algo(const std::string& name, Arguments arguments) {
  AlgoOptions options;
  Flags flags("The policy loss with KL term and truncated importance sampling, and its gradient.",
              name);
  flags.add("--tokens", options.tokens, "Response tokens");
  flags.add("--response-length", options.response_length, "Tokens per response");
  flags.add("--micro-batch-tokens", options.micro_batch_tokens,
            "Tokens of one call: the trainer calls once per micro-batch, and what a call makes "
            "on its way should stay in the caches");
  flags.repeats(options.repeats, "The best counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_algo(options);
  return 0;
}

}  // namespace slime::bench
