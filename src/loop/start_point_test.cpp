// One file because each test leaves runs in folders, by one fixture, and begins a run there.

#include "loop/start_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "config/parse_flags.h"
#include "core/error.h"
#include "core/replace_file.h"
#include "report/run_history.h"
#include "train/checkpoint_directory.h"
#include "train/run_parts.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;
using config::RunConfig;
using testing::AllOf;
using testing::HasSubstr;

/// A folder of its own for each test; runs lie in it under their names.
class StartPointTest : public testing::Test {
 protected:
  StartPointTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("start_point_") + test->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~StartPointTest() override { fs::remove_all(root_); }

  RunConfig command(const std::string& name) const {
    RunConfig config;
    config.hf_checkpoint = "model";
    config.run_dir = (root_ / name).string();
    return config;
  }

  /// What a run leaves that has done steps: run.json, a line of metrics, a rollout file, a ledger.
  static void leave_steps(const RunConfig& config, const std::string& run_id) {
    const report::RunFolder folder(config);
    folder.write_run_json({{"run_id", run_id},
                           {"flags", config::changed_flags(config)},
                           {kBeganWith, beginning_of(config)}});
    std::ofstream(folder.metrics()) << "{\"step\": 0}\n";
    std::ofstream(folder.rollouts(0)) << "{}\n";
    std::ofstream(folder.ledger()) << "x\n";
  }

  static fs::path leave_checkpoint(const RunConfig& config, int64_t iteration,
                                   const std::string& run_id) {
    const report::RunFolder folder(config);
    const json::object run{{"run_id", run_id}};
    const json::object trainer{
        {"num_updates", 0}, {"num_steps", 0}, {"samples_done", 0}, {"rollouts_done", 0}};
    const fs::path directory = train::write_checkpoint_directory(
        folder.checkpoints(), iteration, [&](const fs::path& path) {
          replace_file(path / "run.json",
                       json_text(json::object{{"run", run}, {"trainer", trainer}}));
        });
    folder.set_latest(directory);
    return directory;
  }

  StartPoint start(const RunConfig& config) {
    warnings_.clear();
    const auto warn = [this](const std::string& text) { warnings_.push_back(text); };
    report::RunFolder folder(config);
    const BranchChoice choice = choose_branch(config, folder, warn);
    follow_choice(choice, folder, warn);
    return choose_start(config, folder, choice, warn);
  }

  std::string refusal(const RunConfig& config) {
    try {
      start(config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  fs::path root_;
  std::vector<std::string> warnings_;
};

TEST_F(StartPointTest, AnEmptyFolderBeginsAnew) {
  const StartPoint begin = start(command("run"));
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_EQ(begin.run_id.size(), 16U);
}

TEST_F(StartPointTest, AFolderWithCheckpointsOfItsOwnGoesOn) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  const StartPoint begin = start(command("run"));
  ASSERT_TRUE(begin.checkpoint.has_value());
  EXPECT_EQ(begin.checkpoint->iteration, 3);
  EXPECT_TRUE(begin.is_own);
  EXPECT_EQ(begin.run_id, "ours");
}

TEST_F(StartPointTest, TrainersBeginAgainAtTheirOwnNewestCheckpointOrWhereTheRunBegan) {
  const auto again = [this](const StartPoint& first) {
    return choose_start_again(first, report::RunFolder(command("run")), [](const std::string&) {});
  };
  StartPoint first{.run_id = "ours"};
  EXPECT_FALSE(again(first).checkpoint.has_value());
  leave_checkpoint(command("run"), 2, "another's");
  EXPECT_FALSE(again(first).checkpoint.has_value()) << "that one is not ours";
  leave_checkpoint(command("run"), 3, "ours");
  const StartPoint begin = again(first);
  ASSERT_TRUE(begin.checkpoint.has_value());
  EXPECT_EQ(begin.checkpoint->iteration, 3);
  EXPECT_TRUE(begin.is_own);
  EXPECT_EQ(epoch_of(begin), -1) << "it does not say";
}

TEST_F(StartPointTest, ALoadedFolderWithoutCheckpointsIsRefusedWithWhatWouldWork) {
  leave_steps(command("run"), "ours");
  const fs::path checkpoint = leave_checkpoint(command("other"), 3, "theirs");
  RunConfig wrong = command("new");
  const auto says = [&](const fs::path& path) {
    wrong.load = path.string();
    return refusal(wrong);
  };
  EXPECT_THAT(says(root_ / "nothing"), AllOf(HasSubstr("--load " + (root_ / "nothing").string()),
                                             HasSubstr("holds no checkpoint (a folder iter_"),
                                             HasSubstr("there is no such folder")));
  EXPECT_THAT(says(root_ / "run"), HasSubstr("without --load the run starts anew"));
  EXPECT_THAT(says(root_ / "other"),
              HasSubstr("there are some in --load " + (root_ / "other/checkpoints").string()));
  fs::copy(checkpoint, root_ / "mine", fs::copy_options::recursive);
  EXPECT_THAT(says(root_ / "mine"), HasSubstr("this is one checkpoint: give its folder"))
      << "its name does not say which rollout it is of";
  std::ofstream(root_ / "run" / "config.json") << "{}";
  EXPECT_THAT(says(root_ / "run"), HasSubstr("this is a model directory that cannot be read"));
}

TEST_F(StartPointTest, OneCheckpointOfAnotherRunIsBegunFromByItsNameOrALinkToIt) {
  const fs::path checkpoint = leave_checkpoint(command("other"), 3, "theirs");
  leave_checkpoint(command("other"), 4, "theirs");
  fs::create_directory_symlink(checkpoint, root_ / "third");
  for (const fs::path& path : {checkpoint, root_ / "third"}) {
    RunConfig config = command("new");
    config.load = path.string();
    const StartPoint begin = start(config);
    ASSERT_TRUE(begin.checkpoint.has_value()) << path;
    EXPECT_EQ(begin.checkpoint->iteration, 3);
    EXPECT_FALSE(begin.is_own);
  }
}

TEST_F(StartPointTest, FinetuneTakesWeightsAloneAndBeginsAtTheFirstRollout) {
  const fs::path theirs = leave_checkpoint(command("other"), 3, "theirs");
  RunConfig tuning = command("run");
  tuning.load = (root_ / "other" / "checkpoints").string();
  tuning.finetune = true;
  const StartPoint begin = start(tuning);
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_EQ(begin.weights, theirs.string());
  ASSERT_TRUE(begin.finetuned.has_value());
  EXPECT_EQ(begin.left_out, uint32_t{train::kFinetune});
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("--finetune: the run begins at rollout 0")));
  tuning.critic_load = "critic";
  EXPECT_EQ(start(tuning).left_out, uint32_t{train::kFinetune | train::kCriticLoad});
  // One checkpoint alone is weights enough.
  tuning.load = theirs.string();
  EXPECT_EQ(start(tuning).weights, theirs.string());
}

TEST_F(StartPointTest, FinetuneDoesNotWriteOverTheRunThatItTakesWeightsOf) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  RunConfig tuning = command("run");
  tuning.finetune = true;
  EXPECT_THAT(refusal(tuning), AllOf(HasSubstr("--finetune: begins at rollout 0"),
                                     HasSubstr("leave --finetune out to go on")));
}

TEST_F(StartPointTest, AStepThatIsRefusedIsNamedWhereItLies) {
  const RunConfig run = command("run");
  leave_steps(run, "ours");
  leave_checkpoint(run, 2, "ours");
  leave_checkpoint(run, 3, "ours");
  const std::string own = (root_ / "run" / "checkpoints").string();
  RunConfig tuning = run;
  tuning.ckpt_step = 2;
  tuning.finetune = true;
  EXPECT_THAT(refusal(tuning), AllOf(HasSubstr("--load " + own + " --ckpt-step 2"),
                                     testing::Not(HasSubstr("branches/"))));
  EXPECT_FALSE(fs::exists(root_ / "run" / "branches"));
  RunConfig above = command("new");
  above.load = run.run_dir;
  above.ckpt_step = 2;
  EXPECT_THAT(refusal(above), HasSubstr("there are some in --load " + own));
}

TEST_F(StartPointTest, TrainersBeginAgainWithAllOfTheirOwnCheckpointWhateverTheRunBeganWithout) {
  leave_checkpoint(command("run"), 3, "ours");
  StartPoint first{.run_id = "ours"};
  first.left_out = train::kNoLoadOptim | train::kFinetune;
  const StartPoint again =
      choose_start_again(first, report::RunFolder(command("run")), [](const std::string&) {});
  EXPECT_EQ(again.left_out, 0U);
  EXPECT_EQ(again.weights, again.checkpoint->directory.string());
}

TEST_F(StartPointTest, AModelDirectoryIsLoadedAsWeightsAlone) {
  const std::string model = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
  RunConfig loading = command("run");
  loading.load = model;
  const StartPoint begin = start(loading);
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_EQ(begin.weights, model);
}

TEST_F(StartPointTest, WhereLoadNamesNothingTheActorBeginsWithTheReference) {
  const std::string reference = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
  RunConfig config = command("run");
  EXPECT_EQ(start(config).weights, "model");
  config.ref_load = reference;
  EXPECT_EQ(start(config).weights, reference);
  EXPECT_THAT(warnings_,
              testing::Contains(HasSubstr("the actor begins with the weights of --ref-load")));
  config.load = (root_ / "nothing").string();
  EXPECT_EQ(start(config).weights, reference);
  // A checkpoint of its own comes first.
  config.load.clear();
  leave_steps(config, "ours");
  const fs::path own = leave_checkpoint(config, 3, "ours");
  EXPECT_EQ(start(config).weights, own.string());
}

TEST_F(StartPointTest, AMegatronCheckpointIsCalledWhatItIs) {
  const fs::path megatron = root_ / "torch_dist";
  fs::create_directories(megatron / "iter_0000010");
  std::ofstream(megatron / "latest_checkpointed_iteration.txt") << "10";
  std::ofstream(megatron / "iter_0000010" / "__0_0.distcp") << "x";
  RunConfig config = command("run");
  config.load = megatron.string();
  EXPECT_THAT(refusal(config), HasSubstr("is a checkpoint of Megatron-LM (torch_dist)"));
  config.load.clear();
  config.ref_load = megatron.string();
  EXPECT_EQ(start(config).weights, "model");
  EXPECT_THAT(warnings_,
              testing::Contains(AllOf(HasSubstr("is a checkpoint of Megatron-LM (torch_dist)"),
                                      HasSubstr("begins with --hf-checkpoint"))));
}

TEST_F(StartPointTest, ScriptsThatLoadWhatTheySaveMayBeginWithNothing) {
  RunConfig script = command("run");
  script.save = (root_ / "saved").string();
  script.load = script.save + "/";
  EXPECT_FALSE(start(script).checkpoint.has_value());
  leave_steps(script, "ours");
  leave_checkpoint(script, 3, "ours");
  EXPECT_EQ(start(script).checkpoint->iteration, 3);
  EXPECT_THAT(warnings_, testing::Not(testing::Contains(HasSubstr("the run began there"))))
      << "it names the run itself, whichever branch is active";
}

TEST_F(StartPointTest, ResultsAreNotOverwrittenByLoadingAnotherRunsCheckpoint) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  leave_checkpoint(command("other"), 1, "theirs");
  RunConfig loading = command("run");
  loading.load = (root_ / "other" / "checkpoints").string();
  EXPECT_THAT(refusal(loading),
              AllOf(HasSubstr("--run-dir " + (root_ / "run").string()),
                    HasSubstr("metrics, 1 rollout file, a ledger, checkpoints up to iter_0000003"),
                    HasSubstr("leave --load out to go on from"), HasSubstr("--overwrite")));
}

TEST_F(StartPointTest, TheSameCommandGoesOnInTheRunThatItBeganFromAnotherOne) {
  const fs::path theirs = root_ / "other" / "checkpoints";
  leave_checkpoint(command("other"), 1, "theirs");
  leave_checkpoint(command("other"), 2, "theirs");
  for (const char* name : {"folder", "step", "record"}) {
    RunConfig loading = command(name);
    loading.load = theirs.string();
    if (loading.run_dir == (root_ / "step").string()) loading.ckpt_step = 1;
    if (loading.run_dir == (root_ / "record").string())
      loading.load = (theirs / "rollout" / "committed_1.json").string();
    leave_steps(loading, "ours");
    leave_checkpoint(loading, 3, "ours");
    const StartPoint again = start(loading);
    ASSERT_TRUE(again.checkpoint.has_value()) << name;
    EXPECT_EQ(again.checkpoint->iteration, 3) << name;
    EXPECT_TRUE(again.is_own) << name;
    EXPECT_EQ(again.left_out, 0U) << name;
    EXPECT_THAT(warnings_, testing::Contains(HasSubstr("the run began there"))) << name;
    // What it does not begin with is refused as before.
    RunConfig another = loading;
    another.load = theirs.string();
    another.ckpt_step = 2;
    EXPECT_THAT(refusal(another), HasSubstr("it has checkpoints of its own")) << name;
    RunConfig tuning = loading;
    tuning.finetune = true;
    EXPECT_NE(refusal(tuning), "") << name;
  }
}

TEST_F(StartPointTest, WhatARunBeganWithoutIsBehindItWhenItGoesOn) {
  leave_checkpoint(command("other"), 2, "theirs");
  for (const bool finetunes : {true, false}) {
    RunConfig loading = command(finetunes ? "tuning" : "moments");
    loading.load = (root_ / "other" / "checkpoints").string();
    if (finetunes) loading.finetune = true;
    if (!finetunes) loading.no_load_optim = true;
    const StartPoint first = start(loading);
    EXPECT_EQ(first.checkpoint.has_value(), !finetunes);
    EXPECT_NE(first.left_out, 0U);
    leave_steps(loading, "ours");
    leave_checkpoint(loading, 3, "ours");
    const StartPoint again = start(loading);
    ASSERT_TRUE(again.checkpoint.has_value());
    EXPECT_EQ(again.checkpoint->iteration, 3);
    EXPECT_TRUE(again.is_own);
    EXPECT_EQ(again.left_out, 0U) << "its own checkpoint, whole";
    EXPECT_THAT(warnings_, testing::Contains(HasSubstr("is behind it")));
    // Another beginning than the run had.
    RunConfig another = loading;
    another.finetune = !finetunes;
    another.no_load_optim = finetunes;
    EXPECT_NE(refusal(another), "");
  }
}

TEST_F(StartPointTest, ARunThatBeganFromAnotherGoesOnThoughThatOneIsGoneButNeverInAThirdOnes) {
  RunConfig loading = command("run");
  loading.load = (root_ / "gone").string();
  loading.save = (root_ / "saved").string();
  leave_steps(loading, "ours");
  leave_checkpoint(loading, 3, "ours");
  EXPECT_EQ(start(loading).checkpoint->iteration, 3);
  leave_checkpoint(loading, 4, "a third");
  EXPECT_THAT(refusal(loading), HasSubstr("is another run's"));
}

TEST_F(StartPointTest, ARunThatDiedBeforeItsFirstCheckpointStartsOver) {
  leave_steps(command("run"), "ours");
  const StartPoint begin = start(command("run"));
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_FALSE(begin.overwrites);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("ended before its first checkpoint: it starts over"));
}

TEST_F(StartPointTest, AnotherCommandDoesNotStartOverInItsPlace) {
  leave_steps(command("run"), "ours");
  RunConfig other = command("run");
  other.lr = 3e-5;
  EXPECT_THAT(refusal(other), HasSubstr("its flags differ: --lr"));
}

TEST_F(StartPointTest, ARunThatFailedBeforeItsFirstStepDoesNotHoldItsFolder) {
  RunConfig failed = command("run");
  failed.custom_rm_path = "wrong.py";
  const auto leave_ledger = [&] {
    const report::RunFolder folder(failed);
    folder.write_run_json({{"run_id", "theirs"}, {"flags", config::changed_flags(failed)}});
    std::ofstream(folder.ledger()) << "x\n";
  };
  leave_ledger();
  RunConfig mended = command("run");
  mended.custom_rm_path = "right.py";
  const StartPoint begin = start(mended);
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_FALSE(begin.is_own) << "what the ledger has does not count any more";
  EXPECT_NE(begin.run_id, "theirs");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("ended before its first step: this one begins there"));
  failed.rollout_session_id = "math";
  leave_ledger();
  EXPECT_THAT(refusal(mended), HasSubstr("its flags differ")) << "engines may have its steps";
}

TEST_F(StartPointTest, ASessionStartsOverWithTheSettingsThatMayDifferInIt) {
  RunConfig session = command("run");
  session.rollout_session_id = "math";
  leave_steps(session, "ours");
  RunConfig again = session;
  again.num_rollout = 12;
  again.max_tokens_per_gpu = 256;
  again.tensor_model_parallel_size = 2;
  EXPECT_EQ(refusal(again), "");
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("it starts over")));
  again.lr = 3e-5;
  EXPECT_THAT(refusal(again), HasSubstr("its flags differ: --lr)"));
  again.lr = session.lr;
  leave_checkpoint(command("other"), 1, "theirs");
  again.load = (root_ / "other" / "checkpoints").string();
  EXPECT_THAT(refusal(again), HasSubstr("its flags differ: --load)"))
      << "the generated steps are of other weights";
  again = command("run");  // of no session
  again.num_rollout = 12;
  EXPECT_THAT(refusal(again), AllOf(HasSubstr("--num-rollout"), HasSubstr("--rollout-session-id")));
}

TEST_F(StartPointTest, RolloutsAloneAreNotMadeAgainOverTheOldOnes) {
  RunConfig generating = command("run");
  generating.debug_rollout_only = true;
  leave_steps(generating, "ours");
  EXPECT_THAT(refusal(generating), HasSubstr("--debug-rollout-only saves no checkpoint"));
}

TEST_F(StartPointTest, ARunWhoseCheckpointsWereRemovedDoesNotStartOver) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  fs::remove_all(root_ / "run" / "checkpoints");
  EXPECT_THAT(refusal(command("run")), HasSubstr("it has saved a checkpoint before"));
}

TEST_F(StartPointTest, AFirstRolloutThatTheRunHasPassedIsRefused) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  RunConfig earlier = command("run");
  earlier.start_rollout_id = 2;
  EXPECT_THAT(refusal(earlier),
              AllOf(HasSubstr("--start-rollout-id 2"), HasSubstr("has rollouts up to 3 already")));
  earlier.start_rollout_id = 4;
  EXPECT_EQ(refusal(earlier), "");
}

TEST_F(StartPointTest, CheckpointsOfAnotherRunInASharedFolderDoNotCountInThisRunsLedger) {
  RunConfig first = command("first"), second = command("second");
  first.save = second.save = (root_ / "saved").string();
  leave_steps(first, "first");
  leave_checkpoint(first, 3, "first");
  const StartPoint begin = start(second);
  EXPECT_EQ(begin.checkpoint->iteration, 3);
  EXPECT_FALSE(begin.is_own);
  EXPECT_NE(begin.run_id, "first");
  leave_steps(second, begin.run_id);  // and killed before it saved
  const StartPoint again = start(second);
  EXPECT_EQ(again.checkpoint->iteration, 3);
  EXPECT_FALSE(again.is_own);
}

TEST_F(StartPointTest, OverwriteRemovesWhatRunsWriteAndNothingElse) {
  const RunConfig old = command("run");
  leave_steps(old, "ours");
  leave_checkpoint(old, 3, "ours");
  std::ofstream(root_ / "run" / "notes.txt") << "mine";
  RunConfig anew = command("run");
  anew.overwrite = true;
  const StartPoint begin = start(anew);
  EXPECT_FALSE(begin.checkpoint.has_value());
  EXPECT_NE(begin.run_id, "ours");
  const report::RunFolder folder(anew);
  report::remove_history(folder);
  const report::RunHistory left = report::read_history(folder);
  EXPECT_FALSE(left.has_steps());
  EXPECT_TRUE(left.checkpoints.empty());
  EXPECT_TRUE(left.run.empty());
  EXPECT_TRUE(fs::exists(root_ / "run" / "notes.txt"));
}

TEST_F(StartPointTest, OverwriteRemovesNoModelThatTheRunNeedsAndNoOtherRunsCheckpoint) {
  leave_steps(command("run"), "ours");
  leave_checkpoint(command("run"), 3, "ours");
  RunConfig anew = command("run");
  anew.overwrite = true;
  anew.hf_checkpoint = (root_ / "run" / "latest").string();
  EXPECT_THAT(refusal(anew), HasSubstr("--overwrite deletes the checkpoints in"));
  RunConfig shared = command("other");
  shared.save = (root_ / "run" / "checkpoints").string();
  shared.overwrite = true;
  EXPECT_THAT(refusal(shared), HasSubstr("is a checkpoint of another run"));
}

TEST_F(StartPointTest, SaveAmongOtherThingsIsRefusedBeforeAnythingIsWritten) {
  RunConfig config = command("run");
  config.save = (root_ / "documents").string();
  fs::create_directories(root_ / "documents" / "photos");
  for (const char* name : {"thesis.tex", "config.json", "b.txt"})
    std::ofstream(root_ / "documents" / name) << "mine";
  EXPECT_THAT(
      refusal(config),
      AllOf(HasSubstr("--save " + config.save), HasSubstr("b.txt, config.json, photos and 1 more"),
            HasSubstr("nothing of a run"), HasSubstr("--save " + config.save + "/slime")));
  EXPECT_FALSE(fs::exists(root_ / "run"));
  EXPECT_FALSE(fs::exists(root_ / "documents" / "lock"));
  config.run_dir.clear();
  config.overwrite = true;
  EXPECT_THAT(refusal(config), HasSubstr("nothing of a run"));
  EXPECT_FALSE(fs::exists(root_ / "documents" / "rollouts"));

  // A checkpoint of another trainer is none of ours either.
  config.save = (root_ / "megatron").string();
  fs::create_directories(root_ / "megatron" / "iter_0000010" / "mp_rank_00");
  std::ofstream(root_ / "megatron" / "latest_checkpointed_iteration.txt") << "10";
  EXPECT_THAT(refusal(config), HasSubstr("holds iter_0000010, and nothing of a run"));
}

TEST_F(StartPointTest, SaveTakesAnEmptyFolderALogAndWhatRunsHaveSavedTo) {
  RunConfig config = command("run");
  config.save = (root_ / "saved").string();
  fs::create_directories(root_ / "saved" / "lost+found");
  std::ofstream(root_ / "saved" / "train.log") << "...";
  EXPECT_EQ(refusal(config), "");
  EXPECT_TRUE(fs::exists(root_ / "saved" / "lock"));
  std::ofstream(root_ / "saved" / "notes.txt") << "mine";  // beside a run's things
  EXPECT_EQ(refusal(config), "");
}

TEST_F(StartPointTest, AFolderThatIsOnlyNamedIsLookedAtAndLeftAsItIs) {
  RunConfig config = command("run");
  const auto look = [&] {
    return choose_start(config, report::RunFolder::only_named(config), {},
                        [](const std::string&) {});
  };
  EXPECT_FALSE(look().checkpoint);
  EXPECT_FALSE(fs::exists(root_ / "run"));
  leave_steps(config, "a");
  leave_checkpoint(config, 3, "a");
  const report::RunFolder owner(config);  // which has the lock
  const StartPoint found = look();
  ASSERT_TRUE(found.checkpoint);
  EXPECT_NO_THROW(refuse_fewer_steps(config, found, 4));
  config.num_rollout = 3;
  try {
    refuse_fewer_steps(config, found, 3);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has 4 rollout steps behind it, the run would have 3"));
  }
}

TEST_F(StartPointTest, ASecondProcessIsToldWhoOwnsTheFolderAlsoOfCheckpointsElsewhere) {
  RunConfig one = command("one"), two = command("two");
  one.save = two.save = (root_ / "saved").string();
  const report::RunFolder folder(one);
  EXPECT_THAT(refusal(one),
              AllOf(HasSubstr("--run-dir "), HasSubstr("belongs to a run that goes on: process ")));
  EXPECT_THAT(refusal(two),
              AllOf(HasSubstr("--save "), HasSubstr("belongs to a run that goes on: process ")));
}

}  // namespace
}  // namespace slime::loop
