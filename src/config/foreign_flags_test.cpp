// Flags that are no row of the table.

#include "config/foreign_flags.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

const std::string kComplete =
    "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
    "--num-rollout 3 "
    "--rollout-max-response-len 16 --rm-type math ";

std::string refusal_of(const std::string& line) {
  try {
    ParsedFlags parsed = parse_flags(words_in(line));
    complete_and_validate(parsed);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> notes_of(const std::string& line) {
  ParsedFlags parsed = parse_flags(words_in(line));
  complete_and_validate(parsed);
  return parsed.warnings;
}

TEST(UnknownFlags, NamesOfOtherSystemsAreAnsweredWithOurs) {
  for (const auto& [theirs, ours] :
       {std::pair{"--learning-rate 1e-5", "--lr"}, std::pair{"--learning_rate 1e-5", "--lr"},
        std::pair{"--lora-target q_proj", "--lora-rank and --target-modules"},
        std::pair{"--use-qlora", "--lora-rank"}, std::pair{"--output-dir out", "--run-dir"},
        std::pair{"--max-steps 10", "--num-rollout"},
        std::pair{"--per-device-train-batch-size 4", "--micro-batch-size"},
        std::pair{"--num-generations 8", "--n-samples-per-prompt"},
        std::pair{"--eval-only", "slime eval"}, std::pair{"--push-to-hub", "slime export"},
        std::pair{"--early-stopping 3", "a break in a loop of Python"},
        std::pair{"--init-kl-coef 0.1", "--kl-coef"},
        std::pair{"--zero-stage 3", "--tensor-model-parallel-size"}}) {
    const std::string text = refusal_of(kComplete + theirs);
    EXPECT_NE(text.find(std::string("; here it is ") + ours), std::string::npos) << text;
  }
  const std::string text = refusal_of(kComplete + "--use_tis");
  EXPECT_NE(text.find("unknown flag --use_tis; did you mean --use-tis?"), std::string::npos)
      << text;
}

TEST(UnknownFlags, WordsOfVerlBehindAFlagAreNotItsValues) {
  for (const std::string before :
       {"--lr 1e-6", "--rollout-stop END", "--use-kl-loss", "--nobodys 1"}) {
    const std::string text = refusal_of(kComplete + before +
                                        " actor_rollout_ref.rollout.n=8 +trainer.nnodes=2 "
                                        "algorithm.nobody_knows=1");
    EXPECT_NE(text.find("\"actor_rollout_ref.rollout.n=8\": expected a flag such as "
                        "--hf-checkpoint; here it is --n-samples-per-prompt"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("\"+trainer.nnodes=2\": expected a flag"), std::string::npos) << text;
    EXPECT_NE(text.find("\"algorithm.nobody_knows=1\": expected a flag"), std::string::npos)
        << text;
    EXPECT_EQ(text.find("takes one value"), std::string::npos) << text;
    EXPECT_EQ(text.find("takes no value"), std::string::npos) << text;
  }
}

TEST(UnknownFlags, AValueMayLookLikeAWordOfVerl) {
  const ParsedFlags parsed = parse_flags(
      std::vector<std::string>{"--wandb-group", "data.x=1", "--rollout-stop", "a.b=c", "x.y=z"});
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.config.wandb_group.peek(), "data.x=1");
  EXPECT_EQ(parsed.config.rollout_stop.peek().size(), 2u);
}

TEST(UnknownFlags, MisspeltOnesAreRefusedBesideFunctionsOfTheUsersToo) {
  const std::string command = kComplete + "--custom-rm-path rewards.py ";
  for (const auto& [theirs, ours] :
       {std::pair{"--learning-rate 3", "here it is --lr"},
        std::pair{"--lora-target q_proj", "here it is --lora-rank"},
        std::pair{"--rolout-batch-size 8", "did you mean --rollout-batch-size?"},
        std::pair{"--use_tis", "did you mean --use-tis?"}}) {
    const std::string text = refusal_of(command + theirs);
    EXPECT_NE(text.find("unknown flag"), std::string::npos) << text;
    EXPECT_NE(text.find(ours), std::string::npos) << text;
    EXPECT_NE(text.find("no file of your functions mentions "), std::string::npos) << text;
    EXPECT_EQ(refusal_of(command + "--allow-unknown-flags " + theirs), "");
  }
  EXPECT_EQ(refusal_of(command + "--tools-of-mine calculator"), "");
  // Published scripts give what nobody reads, but nothing that the update depends on.
  EXPECT_NE(refusal_of(command + "--from-launch-script --learning-rate 3"), "");
  EXPECT_EQ(refusal_of(command + "--from-launch-script --threads 3"), "");
}

TEST(UnknownFlags, WhatAFunctionsFileMentionsIsItsOwn) {
  const auto path =
      std::filesystem::temp_directory_path() / ("judge_" + std::to_string(::getpid()) + ".py");
  std::ofstream(path) << "class Judge:\n    def __init__(self, model_path, args):\n"
                         "        self.rate = args.learning_rates\n";
  for (const std::string& named : {path.string(), path.string() + ":Judge"}) {
    const std::string command = kComplete + "--custom-rm-path " + named + " ";
    EXPECT_EQ(refusal_of(command + "--model-path judge"), "");
    EXPECT_NE(refusal_of(command + "--learning-rate 3"), "") << "the word is another one";
  }
  std::filesystem::remove(path);
}

TEST(UnknownFlags, KeysOfTheFileOfOnesOwnAreDeclaredToBeTheFunctions) {
  const auto path =
      std::filesystem::temp_directory_path() / ("own_keys_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << "learning_rate: 3\n";
  ParsedFlags parsed = parse_flags(
      words_in(kComplete + "--custom-rm-path rewards.py --custom-config-path " + path.string()));
  std::filesystem::remove(path);
  complete_and_validate(parsed);
  EXPECT_EQ(parsed.unknown.at("learning_rate"), 3);
}

TEST(UnknownFlags, DottedFlagsOfOpenRlhfAreAnsweredWithOurs) {
  for (const auto& [theirs, ours] :
       {std::pair{"--actor.model_name_or_path M", "--hf-checkpoint"},
        std::pair{"--data.prompt_dataset D", "--prompt-data"},
        std::pair{"--actor.adam.lr 1e-6", "--lr"},
        std::pair{"--critic.adam.lr 1e-6", "lr of the role critic"},
        std::pair{"--rollout.n_samples_per_prompt 8", "--n-samples-per-prompt"},
        std::pair{"--eval.n_samples_per_prompt 8", "--n-samples-per-eval-prompt"},
        std::pair{"--rollout.max_new_tokens 8", "--rollout-max-response-len"},
        std::pair{"--reward.remote_url http://x", "--rm-type remote_rm --rm-url"},
        std::pair{"--vllm.tensor_parallel_size 2", "--rollout-num-gpus-per-engine"},
        std::pair{"--train.batch_size 2", "--global-batch-size"},
        std::pair{"--train.micro_batch_size 2", "--micro-batch-size"},
        std::pair{"--algo.kl.init_coef 0.1", "--kl-coef"},
        std::pair{"--ds.zero_stage 3", "--tensor-model-parallel-size"},
        std::pair{"--ds.lora.rank 3", "--lora-rank"}}) {
    const std::string text = refusal_of(kComplete + theirs);
    EXPECT_NE(text.find(std::string("; here it is ") + ours), std::string::npos) << text;
  }
  EXPECT_TRUE(speaks_of_training("--actor.adam.lr"));
}

TEST(UnknownFlags, WordsOfVerlAreAnsweredWithOurs) {
  for (const auto& [theirs, ours] :
       {std::pair{"algorithm.adv_estimator=grpo", "--advantage-estimator"},
        std::pair{"data.train_files=train.parquet", "--prompt-data"},
        std::pair{"data.train_batch_size=128", "--rollout-batch-size, in prompts"},
        std::pair{"data.max_response_length=1024", "--rollout-max-response-len"},
        std::pair{"actor_rollout_ref.model.path=MODEL", "--hf-checkpoint"},
        std::pair{"actor_rollout_ref.actor.optim.lr=1e-6", "--lr"},
        std::pair{"critic.optim.lr=1e-5", "lr of the role critic"},
        std::pair{"actor_rollout_ref.rollout.n=8", "--n-samples-per-prompt"},
        std::pair{"actor_rollout_ref.rollout.val_kwargs.temperature=0", "--eval-temperature"},
        std::pair{"actor_rollout_ref.actor.use_kl_loss=True", "--use-kl-loss"},
        std::pair{"+actor_rollout_ref.actor.kl_loss_coef=0.001", "--kl-loss-coef"}}) {
    const std::string text = refusal_of(theirs + (" " + kComplete));
    const std::string says = "\"" + std::string(theirs) +
                             "\": expected a flag such as --hf-checkpoint; here it is " + ours;
    EXPECT_NE(text.find(says), std::string::npos) << text;
  }
  const std::string unknown = refusal_of("a.frobnicate=c " + kComplete);
  EXPECT_NE(unknown.find("\"a.frobnicate=c\": expected a flag"), std::string::npos) << unknown;
  EXPECT_EQ(unknown.find("here it is"), std::string::npos) << unknown;
}

TEST(UnknownFlags, AnUnknownFlagInAFileIsAsUnknown) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "unknown.yaml";
  std::ofstream(path) << "learning_rate: 1e-5\n";
  for (const std::string file : {"--config ", "--custom-config-path "}) {
    const std::string text = refusal_of(kComplete + file + path.string());
    EXPECT_NE(text.find(path.string() + ": unknown flag --learning-rate; here it is --lr"),
              std::string::npos)
        << text;
  }
}

TEST(UnknownFlags, AKeyOfTheUsersOwnFileThatResemblesNoFlagIsANote) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "own.yaml";
  std::ofstream(path) << "frobnicate: 3\n";
  EXPECT_EQ(notes_of(kComplete + "--custom-config-path " + path.string()),
            (std::vector<std::string>{path.string() + ": unknown flag --frobnicate; it is for "
                                                      "functions of yours, and there are none"}));
}

TEST(UnknownFlags, UnknownFlagsMayBeAllowed) {
  ParsedFlags parsed = parse_flags(words_in(kComplete + "--frobnicate --learning-rate 1 "
                                                        "--allow-unknown-flags"));
  complete_and_validate(parsed);
  EXPECT_EQ(parsed.ignored, (std::vector<std::string>{"--frobnicate", "--learning-rate"}));
}

TEST(UnknownFlags, OfALaunchScriptOnlyUnknownFlagsAboutTrainingStopTheRun) {
  ParsedFlags parsed =
      parse_flags(words_in("--from-launch-script " + kComplete + "--frobnicate 3"));
  complete_and_validate(parsed);
  EXPECT_EQ(parsed.warnings,
            (std::vector<std::string>{"unknown flag --frobnicate; it is ignored"}));
  for (const std::string flag :
       {"--kl-magic 1", "--my-optimizer x", "--train-data y", "--lora-z 1", "--fp8-fast",
        "--reward-shape z", "--optimiser sgd", "--fp17", "--gamma2 1"}) {
    EXPECT_NE(refusal_of("--from-launch-script " + kComplete + flag).find("unknown flag --"),
              std::string::npos)
        << flag;
  }
}

TEST(UnknownFlags, AnUnknownFlagStopsTheRunAndNamesTheNearest) {
  const std::string text = refusal_of(kComplete + "--rollout-temprature 0.7 --frobnicate");
  EXPECT_NE(text.find("unknown flag --rollout-temprature; did you mean --rollout-temperature?"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("unknown flag --frobnicate"), std::string::npos) << text;
  EXPECT_NE(text.find("(--allow-unknown-flags goes on without it)"), std::string::npos) << text;
}

}  // namespace
}  // namespace slime::config
