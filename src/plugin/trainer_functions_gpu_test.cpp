// Functions of the user's beside a trainer on a GPU, whose tensors are the GPU's.

#include "plugin/trainer_functions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/gpu/for_tests.h"
#include "plugin/users_loss_test.h"

namespace slime::plugin {
namespace {

#define SLIME_NEEDS_PYTHON_ON_THE_GPU() \
  SLIME_NEEDS_GPU();                    \
  if (torch_python().empty() || !finds_gpu()) GTEST_SKIP() << "no python3 whose torch has CUDA"

bool finds_gpu() {
  static const bool found =
      std::system(
          fmt::format("{} -c 'import torch; assert torch.cuda.is_available()' > /dev/null 2>&1",
                      torch_python())
              .c_str()) == 0;
  return found;
}

config::RunConfig on_gpu(config::RunConfig config) {
  config.device = "cuda";
  return config;
}

/// Kernels that add in another order: a hundred-thousandth of the gradient as a whole.
void expect_close(const Gradients& actual, const Gradients& expected) {
  for (const char* name : {"loss", "pg_loss", "pg_clipfrac", "ppo_kl", "entropy_loss"})
    EXPECT_NEAR(actual.sums.at(name), expected.sums.at(name), 1e-5) << name;
  const double norm = expected.flat.norm().item<double>();
  EXPECT_GT(norm, 0.01);
  EXPECT_LT((actual.flat - expected.flat).norm().item<double>(), 1e-5 * norm);
}

TEST_F(UsersLoss, InPythonOnAGpuEqualsTheBuiltInOne) {
  SLIME_NEEDS_PYTHON_ON_THE_GPU();
  for (const double entropy_coef : {0.0, 0.3}) {
    config::RunConfig config = on_gpu(run_config());
    config.entropy_coef = entropy_coef;
    expect_close(gradients(with_function(config, kExamples + "/grpo_loss.py"), batch_of_four()),
                 gradients(config, batch_of_four()));
  }
}

/// They are the GPU's own, and so is everything beside them; what was taken for them goes back.
TEST_F(UsersLoss, InPythonOnAGpuMayReadTheLogits) {
  SLIME_NEEDS_PYTHON_ON_THE_GPU();
  const std::string path = write("own.py", fmt::format(R"(
import importlib.util, torch
spec = importlib.util.spec_from_file_location("example", "{}")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
def loss(args, batch, logits, sum_of_sample_mean):
    assert logits.is_cuda and batch["tokens"].is_cuda and all(each.is_cuda for each in batch["advantages"])
    assert not logits.was_read and list(logits.shape[:2]) == list(batch["tokens"].shape)
    return example.loss(args, batch, logits * 1, sum_of_sample_mean)
)",
                                                       kExamples + "/grpo_loss.py"));
  const int64_t mapped = kernels::opened_gpu().memory_use().mapped;
  for (const int64_t tokens : {64, 12}) {
    config::RunConfig config = on_gpu(run_config());
    config.max_tokens_per_gpu = tokens;
    expect_close(gradients(with_function(config, path), batch_of_four()),
                 gradients(config, batch_of_four()));
  }
  EXPECT_EQ(kernels::opened_gpu().memory_use().mapped, mapped);
}

TEST_F(UsersLoss, InPythonOnAGpuScoresTokensInTheNucleusTheyWereSampledFrom) {
  SLIME_NEEDS_PYTHON_ON_THE_GPU();
  config::RunConfig config = on_gpu(run_config());
  config.rollout_top_p = 0.9;
  const train::TrainBatch batch = with_nuclei(batch_of_four());
  expect_close(gradients(with_function(config, kExamples + "/grpo_loss.py"), batch),
               gradients(config, batch));
}

/// Four functions of columns at once, on the host and on a GPU.
TEST_F(UsersLoss, FunctionsOfColumnsGetThemOnTheGpu) {
  SLIME_NEEDS_PYTHON_ON_THE_GPU();
  config::RunConfig config = run_config();
  config.use_tis = true;
  config.plugin_python = torch_python();
  const std::string path = write("columns.py", R"(
import torch
def advantages(args, rollout_data):
    pairs = zip(rollout_data["rewards"], rollout_data["loss_masks"])
    rollout_data["advantages"] = [reward + mask.float() * 0.5 for reward, mask in pairs]
    rollout_data["returns"] = rollout_data["advantages"]
def data_postprocess(args, rollout_id, rollout_data):
    rollout_data["advantages"][0].mul_(2)
def tis(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **kwargs):
    weight = torch.exp(torch.cat(train_log_probs) - torch.cat(rollout_log_probs)).clamp(max=args.tis_clip)
    return pg_loss * weight, loss_masks, {"weight": weight, "on_gpu": weight * 0 + weight.is_cuda}
def reducer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    return lambda values: (values * torch.cat(loss_masks)).sum() / 7
)");
  config.custom_advantage_function_path = path;
  config.rollout_data_postprocess_path = path;
  config.custom_tis_function_path = path;
  config.custom_pg_loss_reducer_function_path = path;
  Gradients host = gradients(config, batch_of_four());
  Gradients gpu = gradients(on_gpu(config), batch_of_four());
  EXPECT_EQ(host.sums.at("on_gpu"), 0);
  EXPECT_GT(gpu.sums.at("on_gpu"), 1);
  host.sums.erase("on_gpu");
  for (auto& [name, value] : host.sums) EXPECT_NEAR(gpu.sums.at(name), value, 2e-3) << name;
  const double norm = host.flat.norm().item<double>();
  EXPECT_LT((gpu.flat - host.flat).norm().item<double>(), 5e-3 * norm);
}

}  // namespace
}  // namespace slime::plugin
