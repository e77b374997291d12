#include "loop/branches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "buffer/ledger.h"
#include "buffer/ledger_audit.h"
#include "config/parse_flags.h"
#include "core/error.h"
#include "core/replace_file.h"
#include "loop/start_point.h"
#include "report/branch_files.h"
#include "report/run_history.h"
#include "train/checkpoint_directory.h"
#include "train/commit_record.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;
using config::RunConfig;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run in a folder of its own, of which a test makes steps and branches.
class BranchesTest : public testing::Test {
 protected:
  BranchesTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("branches_") + test->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    config_.hf_checkpoint = "model";
    config_.run_dir = (root_ / "run").string();
    config_.num_rollout = 100;
  }
  ~BranchesTest() override { fs::remove_all(root_); }

  /// What steps leave, as Checkpoints::save writes it.
  static void make_steps(const report::RunFolder& folder, int64_t first, int64_t end,
                         bool has_ledger = true) {
    auto ledger = fs::exists(folder.ledger())
                      ? buffer::Ledger::open_at(
                            folder.ledger(), static_cast<int64_t>(fs::file_size(folder.ledger())))
                      : buffer::Ledger::create(folder.ledger());
    for (int64_t step = first; step < end; ++step) {
      ledger.append({.ordinal = step});
      ledger.append(
          {.ordinal = step, .outcome = buffer::Outcome::kTrained, .step = step, .tokens = 5});
      ledger.append(buffer::LedgerTotals{
          .step = step, .next_ordinal = step + 1, .generated = 5 * (step + 1)});
      std::ofstream(folder.metrics(), std::ios::app) << "{\"step\": " << step << "}\n";
      std::ofstream(folder.rollouts(step)) << folder.branch() << "\n";
      json::object run{{"run_id", "ours"}};
      if (has_ledger) run["ledger"] = ledger.commit();
      const json::object trainer{
          {"num_updates", 0}, {"num_steps", 0}, {"samples_done", 0}, {"rollouts_done", 0}};
      const fs::path directory =
          train::write_checkpoint_directory(folder.checkpoints(), step, [&](const fs::path& path) {
            replace_file(path / "run.json",
                         json_text(json::object{{"run", run}, {"trainer", trainer}}));
          });
      folder.set_latest(directory);
      train::write_commit_record(folder.checkpoints(), step, {{"resumable", true}});
    }
  }

  void begin_main(int64_t steps) {
    const report::RunFolder folder(config_);
    folder.write_run_json({{"run_id", "ours"}, {"flags", config::changed_flags(config_)}});
    make_steps(folder, 0, steps);
  }

  struct Started {
    std::string branch;
    int64_t after = -1;
    BranchChoice choice;
  };

  /// As a run starts: chooses, follows, and begins to write.
  Started start(const RunConfig& config) {
    warnings_.clear();
    const auto warn = [this](const std::string& text) { warnings_.push_back(text); };
    report::RunFolder folder(config);
    const BranchChoice choice = choose_branch(config, folder, warn);
    follow_choice(choice, folder, warn);
    const StartPoint begin = choose_start(config, folder, choice, warn);
    const int64_t after = begin.checkpoint ? begin.checkpoint->iteration : -1;
    begin_branch(config, choice, folder, after, SystemClock());
    return {folder.branch(), after, choice};
  }

  RunConfig at_step(int64_t step) const {
    RunConfig config = config_;
    config.ckpt_step = step;
    return config;
  }

  RunConfig loading(const fs::path& path) const {
    RunConfig config = config_;
    config.load = path.string();
    return config;
  }

  report::RunFolder folder_of(const std::string& branch) const {
    report::RunFolder folder = report::RunFolder::only_named(config_);
    folder.go_to_branch(branch);
    return folder;
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
  RunConfig config_;
  std::vector<std::string> warnings_;
};

TEST_F(BranchesTest, AnEarlierStepMakesABranchAndLeavesTheFirstAsItIs) {
  begin_main(8);
  const auto before = train::committed_iterations(folder_of("main").checkpoints());
  const auto ledger = fs::file_size(folder_of("main").ledger());
  const Started branch = start(at_step(4));
  EXPECT_EQ(branch.after, 4);
  EXPECT_NE(branch.branch, "main");
  EXPECT_EQ(train::committed_iterations(folder_of("main").checkpoints()), before);
  EXPECT_EQ(fs::file_size(folder_of("main").ledger()), ledger);
  const report::RunFolder made = folder_of(branch.branch);
  EXPECT_THAT(train::committed_iterations(made.checkpoints()), ElementsAre(4));
  EXPECT_TRUE(fs::exists(made.rollouts(4)));
  EXPECT_FALSE(fs::exists(made.rollouts(5)));
  const buffer::LedgerAudit audit = buffer::audit_ledger(made.ledger());
  EXPECT_THAT(audit.problems, ElementsAre());
  EXPECT_EQ(audit.checkpoint->totals.step, 4);
  EXPECT_EQ(audit.prompts.trained, 5);
}

TEST_F(BranchesTest, AStartWithoutLoadGoesOnInTheActiveBranchAndMainIsGoneBackToByItsName) {
  begin_main(8);
  const Started branch = start(at_step(4));
  make_steps(folder_of(branch.branch), 5, 7);
  EXPECT_EQ(start(config_).branch, branch.branch);
  EXPECT_EQ(start(config_).after, 6);
  const Started back = start(loading(root_ / "run" / "branches" / "main"));
  EXPECT_EQ(back.branch, "main");
  EXPECT_EQ(back.after, 7);
  EXPECT_EQ(start(config_).branch, "main");
  const Started again = start(loading(root_ / "run" / "branches" / branch.branch));
  EXPECT_EQ(again.branch, branch.branch);
  EXPECT_EQ(again.after, 6);
}

TEST_F(BranchesTest, TheSameCommandGoesOnInTheBranchThatItMade) {
  begin_main(8);
  const Started branch = start(at_step(4));
  make_steps(folder_of(branch.branch), 5, 7);
  EXPECT_EQ(start(at_step(4)).branch, branch.branch);
  EXPECT_EQ(start(at_step(4)).after, 6);
  RunConfig restarted = at_step(4);
  restarted.start_rollout_id = 5;
  const Started with_first = start(restarted);
  make_steps(folder_of(with_first.branch), 5, 8);
  EXPECT_EQ(start(restarted).after, 7) << "though its first rollout is done";
  RunConfig other = at_step(4);
  other.lr = 3e-5;
  const Started second = start(other);
  EXPECT_NE(second.branch, branch.branch);
  EXPECT_EQ(second.after, 4);
  EXPECT_EQ(report::origin_of_branch(folder_of("main").base(), second.branch)->parent, "main")
      << "the step is main's; the branch only has a link to it";
}

TEST_F(BranchesTest, TheNewestStepIsGoneOnFromInPlace) {
  begin_main(8);
  EXPECT_EQ(start(at_step(7)).branch, "main");
  EXPECT_EQ(start(loading(root_ / "run/checkpoints/iter_0000007")).branch, "main");
  EXPECT_EQ(report::branch_names(folder_of("main").base()).size(), 1U);
}

TEST_F(BranchesTest, EveryFormOfLoadNamesItsStep) {
  begin_main(8);
  int64_t rollouts = 100;
  const auto fresh = [&](RunConfig config) {
    config.num_rollout = ++rollouts;  // another command: a branch of its own
    return start(config);
  };
  for (const fs::path& path : {root_ / "run/checkpoints/rollout/committed_3.json",
                               root_ / "run/checkpoints/iter_0000003"}) {
    const Started begun = fresh(loading(path));
    EXPECT_NE(begun.branch, "main") << path;
    EXPECT_EQ(begun.after, 3) << path;
  }
  // By the folder of --save alone, and the step of main's history.
  RunConfig both = loading(root_ / "run/branches/main");
  both.ckpt_step = 2;
  EXPECT_EQ(fresh(both).after, 2);
}

TEST_F(BranchesTest, AStepBeforeTheBranchIsOneOfItsParents) {
  begin_main(8);
  const Started branch = start(at_step(4));
  make_steps(folder_of(branch.branch), 5, 7);
  const Started older = start(at_step(2));
  EXPECT_EQ(older.after, 2);
  EXPECT_EQ(report::origin_of_branch(folder_of("main").base(), older.branch)->parent, "main");
  start(loading(root_ / "run" / "branches" / branch.branch));
  const Started inner = start(at_step(5));
  EXPECT_EQ(inner.after, 5);
  EXPECT_EQ(report::origin_of_branch(folder_of("main").base(), inner.branch)->parent,
            branch.branch);
}

TEST_F(BranchesTest, AStepThatIsNotInTheHistoryIsRefusedWithThoseThatAre) {
  begin_main(8);
  const Started branch = start(at_step(4));
  make_steps(folder_of(branch.branch), 5, 6);
  EXPECT_THAT(
      refusal(at_step(7)),
      AllOf(HasSubstr("no checkpoint of rollout 7 in the history of branch " + branch.branch),
            HasSubstr("there are: 0, 1, 2, 3, 4, 5"), HasSubstr("branch main has one")));
  EXPECT_THAT(refusal(loading(root_ / "run/checkpoints/rollout/committed_40.json")),
              AllOf(HasSubstr("there is no such record"), HasSubstr("0, 1, 2, 3, 4, 5, 6, 7")));
}

TEST_F(BranchesTest, WhatCannotGoOnExactlyIsRefused) {
  begin_main(8);
  const fs::path record = root_ / "run/checkpoints/rollout/committed_3.json";
  for (const bool by_record : {true, false}) {
    RunConfig config = by_record ? loading(record) : at_step(3);
    if (!by_record) config.rollout_data_transport = "straw";
    config.no_load_optim = true;
    EXPECT_THAT(refusal(config), HasSubstr("--no-load-optim: not with")) << by_record;
  }
  RunConfig finetune = loading(record);
  finetune.finetune = true;
  EXPECT_THAT(refusal(finetune), HasSubstr("--finetune: not with"));
  RunConfig first = at_step(3);
  first.start_rollout_id = 6;
  EXPECT_THAT(refusal(first), HasSubstr("goes on with rollout 4"));
  RunConfig two = loading(record);
  two.ckpt_step = 5;
  EXPECT_THAT(refusal(two), HasSubstr("two steps"));
  EXPECT_EQ(report::branch_names(folder_of("main").base()).size(), 1U);
}

TEST_F(BranchesTest, ARecordThatDoesNotAgreeWithItsCheckpointIsRefused) {
  begin_main(4);
  const fs::path record = root_ / "run/checkpoints/rollout/committed_2.json";
  const json::value good = read_json_file(record);
  const auto with = [&](std::string_view key, json::value value) {
    json::object changed = good.get_object();
    changed[key] = std::move(value);
    replace_file(record, json_text(changed));
    return refusal(loading(record));
  };
  EXPECT_THAT(with("rollout_id", 1), AllOf(HasSubstr("committed_2.json: does not belong"),
                                           HasSubstr("rollout_id 1: its name says 2"),
                                           HasSubstr("iter_0000002 goes on from the checkpoint")));
  EXPECT_THAT(with("resumable", false), HasSubstr("nothing goes on from this"));
  EXPECT_THAT(with("version", 2), HasSubstr("version 2: should be 1"));
  EXPECT_THAT(with("files", json::object()), HasSubstr("files: names none"));
  EXPECT_THAT(with("files", json::object{{"../../other", json::object{{"size", 1}}}}),
              HasSubstr("should be a path in the folder"));
  json::object files = good.at("files").as_object();
  files["iter_0000002/run.json"].as_object()["size"] = 1;
  EXPECT_THAT(with("files", files), HasSubstr("where the record says 1"));
  files = good.at("files").as_object();
  files["iter_0000002/run.json"].as_object()["sha256"] = std::string(64, '0');
  EXPECT_THAT(with("files", files), HasSubstr("another content (sha256)"));
  replace_file(record, "{\"version\": 1, \"rollout_");
  EXPECT_THAT(refusal(loading(record)), HasSubstr("does not belong to its checkpoint"));
  EXPECT_EQ(report::branch_names(folder_of("main").base()).size(), 1U);
  replace_file(record, json_text(good));
  EXPECT_EQ(start(loading(record)).after, 2);
}

TEST_F(BranchesTest, OverwriteSaysWhichBranchesItDeletes) {
  begin_main(8);
  const Started branch = start(at_step(4));
  make_steps(folder_of(branch.branch), 5, 7);
  start(loading(root_ / "run/branches/main"));
  RunConfig anew = config_;
  anew.overwrite = true;
  start(anew);
  EXPECT_THAT(warnings_,
              testing::Contains(
                  AllOf(HasSubstr("--overwrite deletes what is in"), HasSubstr("8 rollout files"),
                        HasSubstr("checkpoints up to iter_0000007, and branch " + branch.branch +
                                  " (checkpoints up to iter_0000006)"))));
}

TEST_F(BranchesTest, RolloutsInAPoolThatIsGoneAreNamed) {
  begin_main(2);
  folder_of("main").keep_rollouts_in(root_ / "pool", "ours");
  EXPECT_EQ(start(config_).after, 1);
  fs::remove_all(root_ / "pool");
  EXPECT_THAT(refusal(config_), AllOf(HasSubstr("run/rollouts: leads to"),
                                      HasSubstr("pool/ours/main"), HasSubstr("mkdir -p")));
  fs::create_directories(root_ / "pool/ours/main");
  EXPECT_EQ(start(config_).after, 1);
  fs::remove_all(root_ / "pool");
  RunConfig anew = config_;
  anew.overwrite = true;
  EXPECT_EQ(start(anew).after, -1);
  report::remove_history(report::RunFolder::only_named(anew));
  EXPECT_TRUE(fs::is_directory(root_ / "run/rollouts"));
}

TEST_F(BranchesTest, WeightsWithoutALedgerAreRefused) {
  {
    const report::RunFolder folder(config_);
    folder.write_run_json({{"run_id", "ours"}});
    make_steps(folder, 0, 3, /*has_ledger=*/false);
  }
  EXPECT_THAT(refusal(at_step(1)), HasSubstr("has weights and no ledger"));
}

TEST_F(BranchesTest, ATrackerEditedByHandChoosesItsStepOnce) {
  begin_main(8);
  const fs::path checkpoints = folder_of("main").checkpoints();
  train::set_tracked_iteration(checkpoints, 3);
  const Started branch = start(config_);
  EXPECT_EQ(branch.after, 3);
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("latest_checkpointed_iteration.txt: says 3")));
  EXPECT_EQ(train::tracked_iteration(checkpoints), 7) << "it is put right";
  make_steps(folder_of(branch.branch), 4, 5);
  EXPECT_EQ(start(config_).after, 4) << "the branch goes on";
  train::set_tracked_iteration(checkpoints, 40);
  EXPECT_THAT(refusal(config_), HasSubstr("no checkpoint of rollout 40"));
}

TEST_F(BranchesTest, ATrackerThatAKillLeftOneBehindChoosesNothing) {
  begin_main(8);
  const fs::path checkpoints = folder_of("main").checkpoints();
  train::set_tracked_iteration(checkpoints, 6);
  fs::remove(train::commit_record(checkpoints, 7));
  const Started begun = start(config_);
  EXPECT_EQ(begun.branch, "main");
  EXPECT_EQ(begun.after, 7);
}

TEST_F(BranchesTest, ANewestCheckpointThatSomebodyDeletedIsNoEdit) {
  begin_main(8);
  const fs::path checkpoints = folder_of("main").checkpoints();
  fs::remove_all(checkpoints / train::checkpoint_name(7));
  EXPECT_EQ(start(config_).branch, "main");
  EXPECT_EQ(start(config_).after, 6);
}

TEST_F(BranchesTest, ABranchThatDidNotBeginIsGoneAtTheNextStart) {
  begin_main(8);
  {
    const auto warn = [](const std::string&) {};
    report::RunFolder folder(config_);
    follow_choice(choose_branch(at_step(4), folder, warn), folder, warn);  // and the process dies
    EXPECT_TRUE(fs::exists(folder.root()));
  }
  EXPECT_EQ(report::branch_names(folder_of("main").base()).size(), 1U);
  EXPECT_EQ(start(config_).branch, "main");
  EXPECT_TRUE(fs::is_empty(root_ / "run" / "branches"));
}

TEST_F(BranchesTest, CheckpointsOfSaveHaveTheirBranchesThere) {
  config_.save = (root_ / "saved").string();
  begin_main(5);
  const Started branch = start(at_step(2));
  EXPECT_TRUE(fs::exists(root_ / "saved/branches" / branch.branch / "iter_0000002/COMMITTED"));
  EXPECT_TRUE(fs::exists(root_ / "run/branches" / branch.branch / "ledger.jsonl"));
  EXPECT_EQ(start(loading(root_ / "saved")).branch, branch.branch) << "as scripts give it";
  EXPECT_EQ(start(loading(root_ / "saved/branches/main")).branch, "main");
  EXPECT_EQ(start(loading(root_ / "saved/branches" / branch.branch)).branch, branch.branch);
}

TEST_F(BranchesTest, AnotherRunsStepIsBegunFromInANewFolder) {
  begin_main(8);
  RunConfig other = loading(root_ / "run/checkpoints/rollout/committed_3.json");
  other.run_dir = (root_ / "other").string();
  EXPECT_EQ(start(other).after, 3);
  RunConfig by_step = loading(root_ / "run/checkpoints");
  by_step.run_dir = (root_ / "third").string();
  by_step.ckpt_step = 2;
  EXPECT_EQ(start(by_step).after, 2);
  by_step.run_dir = (root_ / "fourth").string();
  by_step.ckpt_step = 20;
  EXPECT_THAT(refusal(by_step), HasSubstr("has no checkpoint of rollout 20"));
}

}  // namespace
}  // namespace slime::loop
