// Losses of the user's, in Python and as a shared library, beside the built-in one that they say again.

#include "plugin/trainer_functions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "plugin/trainer_host.h"
#include "plugin/users_loss_test.h"

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;

/// float32 sums in another order: a millionth of the gradient as a whole.
void expect_equal(const Gradients& actual, const Gradients& expected) {
  for (const char* name : {"loss", "pg_loss", "pg_clipfrac", "ppo_kl", "entropy_loss"})
    EXPECT_NEAR(actual.sums.at(name), expected.sums.at(name), 1e-6) << name;
  const double norm = expected.flat.norm().item<double>();
  EXPECT_GT(norm, 0.01);
  EXPECT_LT((actual.flat - expected.flat).norm().item<double>(), 1e-6 * norm);
}

TEST_F(UsersLoss, AsALibraryEqualsTheBuiltInOne) {
  const config::RunConfig config = run_config();
  expect_equal(gradients(with_library(config, kExamples + "/grpo_loss.cpp"), batch_of_four()),
               gradients(config, batch_of_four()));
}

TEST_F(UsersLoss, AsALibraryHasGradientsOfEntropies) {
  config::RunConfig config = run_config();
  config.entropy_coef = 0.3;
  expect_equal(gradients(with_library(config, kExamples + "/grpo_loss.cpp"), batch_of_four()),
               gradients(config, batch_of_four()));
}

TEST_F(UsersLoss, InPythonEqualsTheBuiltInOne) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  expect_equal(gradients(with_function(config, kExamples + "/grpo_loss.py"), batch_of_four()),
               gradients(config, batch_of_four()));
  config.entropy_coef = 0.3;
  expect_equal(gradients(with_function(config, kExamples + "/grpo_loss.py"), batch_of_four()),
               gradients(config, batch_of_four()));
}

/// The same numbers from the logits themselves, in several micro-batches.
TEST_F(UsersLoss, InPythonMayReadTheLogits) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  const std::string path = write("own.py", R"(
import torch
def loss(args, batch, logits, sum_of_sample_mean):
    all_log_probs = torch.log_softmax(logits[0] / args.rollout_temperature, -1)
    end, picked, entropy = 0, [], []
    for tokens, response in zip(batch["unconcat_tokens"], batch["response_lengths"]):
        end += len(tokens)
        rows = all_log_probs[end - response - 1 : end - 1]
        picked.append(rows.gather(1, tokens[-response:, None])[:, 0])
        entropy.append(-(rows.exp() * rows).sum(-1))
    log_probs, advantages = torch.cat(picked), torch.cat(batch["advantages"])
    kl = torch.cat(batch["log_probs"]) - log_probs
    pg = sum_of_sample_mean(-torch.exp(-kl) * advantages)
    zero = sum_of_sample_mean(kl * 0)
    metrics = {"pg_loss": pg, "pg_clipfrac": zero, "ppo_kl": sum_of_sample_mean(kl),
               "entropy_loss": sum_of_sample_mean(torch.cat(entropy))}
    return pg, metrics
)");
  for (const int64_t tokens : {64, 12}) {
    config::RunConfig config = run_config();
    config.max_tokens_per_gpu = tokens;
    expect_equal(gradients(with_function(config, path), batch_of_four()),
                 gradients(config, batch_of_four()));
  }
}

TEST_F(UsersLoss, InPythonScoresTokensInTheNucleusTheyWereSampledFrom) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  config.rollout_top_p = 0.9;
  const train::TrainBatch batch = with_nuclei(batch_of_four());
  const Gradients expected = gradients(config, batch);
  const std::string example = kExamples + "/grpo_loss.py";
  expect_equal(gradients(with_function(config, example), batch), expected);
  // From the logits, and in several micro-batches: the same, and the gradient goes through them.
  config.max_tokens_per_gpu = 24;
  const std::string path = write("nuclei.py", fmt::format(R"(
import importlib.util, torch
spec = importlib.util.spec_from_file_location("example", "{}")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
def loss(args, batch, logits, sum_of_sample_mean):
    names = ("unconcat_tokens", "total_lengths", "response_lengths")
    given = dict(args=args, **{{name: batch[name] for name in names}})
    nuclei = dict(top_p_token_ids=batch["rollout_top_p_token_ids"], top_p_token_offsets=batch["rollout_top_p_token_offsets"])
    log_probs = lambda logits, **more: torch.cat(example.get_log_probs_and_entropy(logits, **given, **more)[1]["log_probs"])
    assert not logits.was_read
    programs = log_probs(logits, **nuclei)
    assert not logits.was_read
    here, whole = log_probs(logits * 1, **nuclei), log_probs(logits)
    assert (programs - here).abs().max() < 1e-5 and (here - whole).min() > -1e-6 and (here - whole).max() > 0.1
    return example.loss(args, batch, logits * 1, sum_of_sample_mean)
)",
                                                          example));
  expect_equal(gradients(with_function(config, path), batch), gradients(config, batch));
}

/// Every row of the logits counts, those of prompts too: sum of squares of all logits.
TEST_F(UsersLoss, LogitsOfPromptsAreThereAndHaveGradients) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  const std::string path = write("squares.py", R"(
def loss(args, batch, logits, sum_of_sample_mean):
    assert list(logits.shape[:2]) == [1, sum(batch["total_lengths"])]
    return logits[:, :3].square().sum(), {}
)");
  config::RunConfig config = run_config();
  const Gradients shared = gradients(with_function(config, path), batch_of_four(), "float64");
  config.no_prefix_sharing = true;
  const Gradients plain = gradients(with_function(config, path), batch_of_four(), "float64");
  EXPECT_NEAR(shared.sums.at("loss"), plain.sums.at("loss"), 1e-9);
  EXPECT_GT(plain.sums.at("loss"), 0);
  EXPECT_LT((shared.flat - plain.flat).abs().max().item<double>(), 1e-9);
  EXPECT_GT(plain.flat.abs().max().item<double>(), 0.01);
}

/// Every trained token's share of its rollout's mean, in one tensor; and what the rest of a test compares.
void expect_same_policy(const Gradients& actual, const Gradients& expected) {
  for (const auto& [name, value] : expected.sums) {
    ASSERT_TRUE(actual.sums.contains(name)) << name;
    EXPECT_NEAR(actual.sums.at(name), value, 1e-6) << name;
  }
  const double norm = expected.flat.norm().item<double>();
  EXPECT_GT(norm, 0.01);
  EXPECT_LT((actual.flat - expected.flat).norm().item<double>(), 1e-6 * norm);
}

TEST_F(UsersLoss, AdvantagesInPythonTakeThePlaceOfTheEstimators) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  config.normalize_advantages = true;
  const Gradients expected = gradients(config, batch_of_four());
  config.plugin_python = torch_python();
  config.custom_advantage_function_path = write("advantages.py", R"(
import torch
def advantages(args, rollout_data):
    assert rollout_data["sample_indices"] == [0, 1, 2, 3] and not any(kl.any() for kl in rollout_data["kl"])
    pairs = list(zip(rollout_data["rewards"], rollout_data["response_lengths"]))
    rollout_data["advantages"] = [torch.full((length,), reward) for reward, length in pairs]
    rollout_data["returns"] = rollout_data["advantages"]
)");
  expect_same_policy(gradients(config, batch_of_four()), expected);
}

TEST_F(UsersLoss, ACorrectionInPythonEqualsTheBuiltInOne) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  config.use_tis = true;
  config.tis_clip = 1.1;
  const Gradients expected = gradients(config, batch_of_four());
  config.plugin_python = torch_python();
  config.custom_tis_function_path = write("correction.py", R"(
import torch
def tis(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **kwargs):
    weight = torch.exp(torch.cat(train_log_probs) - torch.cat(rollout_log_probs))
    bounded = weight.clamp(args.tis_clip_low, args.tis_clip)
    metrics = {"tis": weight, "tis_clipfrac": (bounded != weight).float(), "tis_abs": (weight - 1).abs()}
    return pg_loss * bounded, loss_masks, metrics
)");
  expect_same_policy(gradients(config, batch_of_four()), expected);
  // With a reducer as well: the gradient goes through both.
  config.custom_pg_loss_reducer_function_path = write("reducer.py", R"(
import torch
def reducer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    return lambda values: (values * torch.cat(loss_masks)).sum() / 7
)");
  const Gradients both = gradients(config, batch_of_four());
  config.custom_tis_function_path.clear();
  config.custom_pg_loss_reducer_function_path.clear();
  config.policy_loss_divisor = 7;
  expect_same_policy(both, gradients(config, batch_of_four()));
}

TEST_F(UsersLoss, ACorrectionMayRejectTokensAndBeReportedAlone) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  config.plugin_python = torch_python();
  config.custom_tis_function_path = write("correction.py", R"(
def tis(args, *, pg_loss, loss_masks, **kwargs):
    return pg_loss * 100, [mask * 0 for mask in loss_masks], {"seen": pg_loss * 0 + 1}
)");
  config.use_tis = true;
  const Gradients rejected = gradients(config, batch_of_four());
  EXPECT_EQ(rejected.sums.at("pg_loss"), 0);
  EXPECT_EQ(rejected.flat.norm().item<double>(), 0);
  EXPECT_NEAR(rejected.sums.at("seen"), 4, 1e-6);
  config.use_tis = false;
  config.get_mismatch_metrics = true;
  const Gradients reported = gradients(config, batch_of_four());
  config.get_mismatch_metrics = false;
  config.custom_tis_function_path.clear();
  const Gradients plain = gradients(config, batch_of_four());
  EXPECT_LT((reported.flat - plain.flat).norm().item<double>(),
            1e-6 * plain.flat.norm().item<double>());
  EXPECT_NEAR(reported.sums.at("seen"), 4, 1e-6);
}

TEST_F(UsersLoss, DataMayBeChangedBeforeItIsTrained) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  config::RunConfig config = run_config();
  config.plugin_python = torch_python();
  config.rollout_data_postprocess_path = write("changes.py", R"(
def data_postprocess(args, rollout_id, rollout_data):
    assert rollout_id == 0
    rollout_data["advantages"][0].mul_(2)
    rollout_data["loss_masks"] = [mask if i < 2 else mask * 0 for i, mask in enumerate(rollout_data["loss_masks"])]
)");
  const Gradients changed = gradients(config, batch_of_four());
  config.rollout_data_postprocess_path.clear();
  train::TrainBatch batch = batch_of_four();
  batch.samples[0].reward *= 2;
  for (int64_t i = 2; i < 4; ++i) std::ranges::fill(batch.samples[i].loss_mask, 0);
  expect_same_policy(changed, gradients(config, batch));
}

std::string reason_of(const auto& act) {
  try {
    act();
  } catch (const FunctionError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(UsersLoss, WhatGoesWrongInPythonIsSaidWithItsTraceback) {
  if (torch_python().empty()) GTEST_SKIP() << "no python3 with torch (Debian: python3-torch)";
  const auto says = [&](const std::string& statement) {
    config::RunConfig config = with_function(
        run_config(), write("bad.py",
                            "import os, time, torch\n"
                            "def loss(args, batch, logits, sum_of_sample_mean):\n    " +
                                statement + "\n"));
    config.plugin_timeout_seconds = 0.2;
    return reason_of([&] { gradients(config, batch_of_four()); });
  };
  const std::string raised = says("raise ValueError('no such luck')");
  EXPECT_THAT(raised, HasSubstr("loss function"));
  EXPECT_THAT(raised, HasSubstr("bad.py, samples 0, 1, 2, 3: ValueError: no such luck"));
  EXPECT_THAT(raised, HasSubstr("Traceback (most recent call last)"));
  EXPECT_THAT(says("return torch.tensor(float('nan')), {}"), HasSubstr("it is one finite number"));
  EXPECT_THAT(says("return torch.zeros(3), {}"), HasSubstr("it is one finite number"));
  EXPECT_THAT(says("return logits.log().sum() * 0 + 1, {}"), HasSubstr("finite"));
  EXPECT_THAT(says("time.sleep(100)"), HasSubstr("it took longer than 0.2 s"));
  EXPECT_THAT(says("os._exit(3)"), HasSubstr("the plug-in host ended with exit code 3"));
  EXPECT_THAT(says("os.kill(os.getpid(), 11)"), HasSubstr("killed by signal 11"));
}

TEST_F(UsersLoss, AnInterpreterWithoutTorchIsAConfigurationError) {
  config::RunConfig config = with_function(run_config(), kExamples + "/grpo_loss.py");
  // An interpreter whose torch is a folder without anything in it.
  std::filesystem::create_directories(folder_ / "nothing" / "torch");
  write("nothing/torch/__init__.py", "raise ImportError('none here')\n");
  config.plugin_python = write(
      "python", fmt::format("#!/bin/sh\nPYTHONPATH={}/nothing:$PYTHONPATH exec python3 \"$@\"\n",
                            folder_.string()));
  std::filesystem::permissions(config.plugin_python, std::filesystem::perms::owner_all);
  try {
    TrainerFunctions functions(config, folder_ / "plugin", 0);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--custom-loss-function-path"));
    EXPECT_THAT(error.what(), HasSubstr("cannot import torch (none here)"));
    EXPECT_THAT(error.what(), HasSubstr("--plugin-python"));
  }
}

TEST_F(UsersLoss, WhatGoesWrongInALibraryIsSaid) {
  const auto says = [&](const std::string& statement) {
    const std::string source = write(
        "bad.cpp",
        "#include <slime/loss.h>\n#include <cmath>\n#include <cstring>\n#include <stdexcept>\n"
        "int32_t slime_loss_version(void) { return SLIME_LOSS_VERSION; }\n"
        "int32_t slime_loss(const slime_loss_input* in, slime_loss_output* out) {\n" +
            statement + "\n}\n");
    const config::RunConfig config = with_library(run_config(), source);
    return reason_of([&] { gradients(config, batch_of_four()); });
  };
  EXPECT_THAT(says("std::strcpy(out->error, \"no such luck\"); return 1;"),
              HasSubstr("samples 0, 1, 2, 3: no such luck"));
  EXPECT_THAT(says("return 7;"), HasSubstr("slime_loss returned 7"));
  EXPECT_THAT(says("out->loss = std::nan(\"\"); return 0;"), HasSubstr("the loss is"));
  EXPECT_THAT(says("out->log_prob_gradient[2] = INFINITY; return 0;"),
              HasSubstr("the gradient of the log-probs is inf at token 2"));
  EXPECT_THAT(says("throw std::runtime_error(\"thrown\");"), HasSubstr("thrown"));
}

TEST_F(UsersLoss, AFileThatIsNoLibraryIsAConfigurationError) {
  config::RunConfig config = run_config();
  config.loss_type = "custom_loss";
  config.custom_loss_library = write("text.so", "no library");
  EXPECT_THROW(TrainerFunctions(config, folder_, 0), ConfigError);
  config = with_library(config, write("other.cpp", "extern \"C\" int other() { return 0; }\n"));
  EXPECT_THROW(TrainerFunctions(config, folder_, 0), ConfigError);
  config = with_library(config, write("later.cpp",
                                      "extern \"C\" int slime_loss_version() { return 99; }\n"
                                      "extern \"C\" int slime_loss() { return 0; }\n"));
  EXPECT_THROW(TrainerFunctions(config, folder_, 0), ConfigError);
}

}  // namespace
}  // namespace slime::plugin
