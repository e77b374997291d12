#include "roles/rank_tasks.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::roles {
namespace {

TEST(RankTasks, TravelAsFrames) {
  TrainerTask task{.kind = RankTask::kTrain};
  task.share.batch_indices = {3};
  task.share.batch.samples.resize(1);
  task.share.batch.samples[0].tokens = {5, 6, 7};
  task.share.steps = {{.micro_batches = {{0}}, .num_executions = 2, .denominator = 4}};
  const TrainerTask back = trainer_task_from(to_frame(task));
  EXPECT_EQ(back.kind, RankTask::kTrain);
  EXPECT_EQ(back.share.batch_indices, task.share.batch_indices);
  EXPECT_EQ(back.share.steps, task.share.steps);
  EXPECT_EQ(back.share.batch.samples[0].tokens, task.share.batch.samples[0].tokens);
  const TrainerTask save{
      .kind = RankTask::kSave,
      .save = {
          .config = {.root = "runs/a/checkpoints", .model_source = "m", .save_optimizer = false},
          .iteration = 7,
          .run = {{"ledger", 120}}}};
  const SaveTask saved = trainer_task_from(to_frame(save)).save;
  EXPECT_EQ(saved.config.root, "runs/a/checkpoints");
  EXPECT_EQ(saved.config.model_source, "m");
  EXPECT_FALSE(saved.config.save_optimizer);
  EXPECT_EQ(saved.iteration, 7);
  EXPECT_EQ(saved.run, save.save.run);
  const TrainerTask meet =
      trainer_task_from(to_frame({.kind = RankTask::kMeet, .address = "10.0.0.2", .port = 4711}));
  EXPECT_EQ(meet.port, 4711);
  EXPECT_EQ(meet.address, "10.0.0.2");
  for (const RankTask kind : {RankTask::kGather, RankTask::kBring, RankTask::kChecksums})
    EXPECT_EQ(trainer_task_from(to_frame({.kind = kind})).kind, kind);
  for (const RankTask kind : {RankTask::kGather, RankTask::kChecksums}) {
    const TrainerTask coded{.kind = kind, .matrices = kernels::MatrixFormat::kFp8Blocks};
    EXPECT_EQ(trainer_task_from(to_frame({.kind = kind})).matrices, kernels::MatrixFormat::kPlain);
    EXPECT_EQ(trainer_task_from(to_frame(coded)).kind, kind);
    EXPECT_EQ(trainer_task_from(to_frame(coded)).matrices, coded.matrices);
  }
  EXPECT_EQ(to_frame({.kind = RankTask::kRelease}).size(), 1u);
  EXPECT_EQ(trainer_task_from(to_frame({.kind = RankTask::kRelease})).kind, RankTask::kRelease);
}

TEST(RankTasks, BytesThatAreNoTaskAreRefused) {
  TrainerTask task{.kind = RankTask::kTrain};
  task.share.batch_indices = {0};
  task.share.batch.samples.resize(1);
  std::string frame = to_frame(task);
  EXPECT_THROW(trainer_task_from(""), BugError);
  EXPECT_THROW(trainer_task_from("x"), BugError);
  EXPECT_THROW(trainer_task_from("ppp"), BugError);
  EXPECT_THROW(trainer_task_from("c"), BugError);
  EXPECT_THROW(trainer_task_from("c{}"), BugError);
  EXPECT_THROW(trainer_task_from("gfp4-blocks"), BugError);
  EXPECT_THROW(trainer_task_from("wfp8-blocks"), BugError);
  for (const char* frame : {"mx", "m4711", "m4711 ", "m 10.0.0.2"})
    EXPECT_THROW(trainer_task_from(frame), BugError) << frame;
  EXPECT_THROW(trainer_task_from(frame.substr(0, frame.size() - 1)), BugError);
  // `truncated`, before the length of the source's name and the number of steps.
  frame[frame.size() - 17] = 2;
  EXPECT_THROW(trainer_task_from(frame), BugError);
  EXPECT_THROW(rank_start_from("s{}"), ConfigError);
  EXPECT_THROW(rank_start_from(R"(s{"config": 1})"), ConfigError);
}

TEST(RankTasks, AWorkerIsFirstToldWhatItIsToBecome) {
  config::RunConfig config;
  config.hf_checkpoint = "model";
  config.actor_num_gpus_per_node = 4;
  const RankStart start{.config = config,
                        .rank = 2,
                        .address = "10.0.0.7",
                        .collective_milliseconds = 5,
                        .num_rollouts = 7,
                        .first_rollout = 2,
                        .plugin_logs = "runs/plugin",
                        .num_threads = 3,
                        .longest_prompt = 96,
                        .weights = "runs/iter_0000004",
                        .adapter = "runs/iter_0000003",
                        .checkpoint = "runs/iter_0000004",
                        .iteration = 4,
                        .left_out = 2,
                        .checkpoints = "runs",
                        .last_checkpoint = 4};
  const RankStart back = rank_start_from(to_frame(start));
  EXPECT_EQ(back.config.hf_checkpoint, "model");
  EXPECT_EQ(layout_of(back.config).dp, 4);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.address, "10.0.0.7");
  EXPECT_EQ(back.collective_milliseconds, 5);
  EXPECT_EQ(back.num_rollouts, 7);
  EXPECT_EQ(back.first_rollout, 2);
  EXPECT_EQ(back.plugin_logs, "runs/plugin");
  EXPECT_EQ(back.num_threads, 3);
  EXPECT_EQ(back.checkpoint, start.checkpoint);
  EXPECT_EQ(back.iteration, 4);
  EXPECT_EQ(back.weights, start.weights);
  EXPECT_EQ(back.adapter, start.adapter);
  EXPECT_EQ(back.left_out, 2U);
  EXPECT_EQ(back.longest_prompt, 96);
  EXPECT_EQ(back.checkpoints, "runs");
  EXPECT_EQ(back.last_checkpoint, 4);
  EXPECT_EQ(rank_start_from(to_frame(RankStart{.config = config})).last_checkpoint, -1);
  EXPECT_THROW(rank_start_from(to_frame({.kind = RankTask::kSave})), ConfigError);
}

TEST(RankTasks, ARankThatCanTrainSaysWhatThereIsToTellAndWhereItsMemoryGoes) {
  const RankReady ready{.notes = {"the optimizer begins anew"}, .memory = {{"total", 80}}};
  const RankReady back = rank_ready_from(to_text(ready));
  EXPECT_EQ(back.notes, ready.notes);
  EXPECT_EQ(back.memory, ready.memory);
  EXPECT_THROW(rank_ready_from("[]"), ConfigError);
  const report::MemoryMeasured used = memory_measured_from(
      to_text(report::MemoryMeasured{.now = 3, .peak = {.bytes = 5, .tensors = 2}}));
  EXPECT_EQ(used.now, 3);
  EXPECT_EQ(used.peak.bytes, 5);
  EXPECT_EQ(used.peak.tensors, 2);
  EXPECT_THROW(memory_measured_from(R"({"now": 3})"), ConfigError);
}

TEST(RankTasks, OrThatItIsToBecomeAnEngine) {
  config::RunConfig config;
  config.hf_checkpoint = "model";
  const EngineStart start{
      .config = config, .longest_prompt = 96, .kv_cache_bytes = 1 << 30, .num_threads = 3};
  const std::string frame = to_frame(start);
  EXPECT_TRUE(is_engine_start(frame));
  EXPECT_FALSE(is_engine_start(to_frame(RankStart{})));
  const EngineStart back = engine_start_from(frame);
  EXPECT_EQ(back.config.hf_checkpoint, "model");
  EXPECT_EQ(back.longest_prompt, 96);
  EXPECT_EQ(back.kv_cache_bytes, 1 << 30);
  EXPECT_EQ(back.num_threads, 3);
  EXPECT_THROW(engine_start_from(to_frame(RankStart{})), ConfigError);
  EXPECT_THROW(engine_start_from(R"(e{"config": {}, "longest_prompt": -1})"), ConfigError);
}

TEST(RankTasks, OrAFurtherRankOfAnEngine) {
  EngineRankStart start{.directory = "model",
                        .device = "cpu",
                        .dtype = "float32",
                        .rank = 1,
                        .num_ranks = 2,
                        .collective_milliseconds = 5};
  EXPECT_TRUE(is_engine_rank_start(to_frame(start)));
  EXPECT_FALSE(engine_rank_start_from(to_frame(start)).trains_adapters);
  EXPECT_FALSE(engine_rank_start_from(to_frame(start)).computes_drafts);
  start.computes_drafts = true;
  EXPECT_TRUE(engine_rank_start_from(to_frame(start)).computes_drafts);
  config::RunConfig run;
  run.lora_rank = 8;
  run.target_modules = std::vector<std::string>{"q_proj"};
  start.trains_adapters = run;
  const EngineRankStart back = engine_rank_start_from(to_frame(start));
  EXPECT_EQ(back.directory, "model");
  EXPECT_EQ(back.rank, 1);
  ASSERT_TRUE(back.trains_adapters);
  EXPECT_EQ(back.trains_adapters->lora_rank, 8);
  EXPECT_EQ(back.trains_adapters->target_modules.get(), run.target_modules.get());
}

TEST(RankTasks, AnEngineThatIsReadySaysWhatItCanServeAndFromWhere) {
  const EngineReady ready{.max_request_tokens = 4096,
                          .device = "an H100",
                          .memory = {"memory of the GPU", "  weights  8.00"}};
  const EngineReady back = engine_ready_from(to_text(ready));
  EXPECT_EQ(back.max_request_tokens, 4096);
  EXPECT_EQ(back.device, "an H100");
  EXPECT_EQ(back.memory, ready.memory);
  EXPECT_THROW(engine_ready_from("4096"), ConfigError);
  EXPECT_THROW(engine_ready_from(R"({"max_request_tokens": 0, "device": "", "memory": []})"),
               ConfigError);
}

TEST(RankTasks, ChecksumsOfAllTensorsAreOneFrame) {
  const WeightChecksums checksums{{"a.weight", 0xFFFF'FFFF'FFFF'FFFF}, {"b", 0}};
  const std::string frame = to_frame(checksums);
  EXPECT_EQ(checksums_from(frame), checksums);
  EXPECT_THROW(checksums_from(frame.substr(0, frame.size() - 1)), BugError);
}

TEST(RankTasks, WeightsComeInNamedPieces) {
  const std::string frame = to_frame(NamedPiece{.name = "a.weight", .offset = 12, .bytes = "xyz"});
  const NamedPiece back = named_piece_from(frame);
  EXPECT_EQ(back.name, "a.weight");
  EXPECT_EQ(back.offset, 12u);
  EXPECT_EQ(back.bytes, "xyz");
  EXPECT_THROW(named_piece_from(""), BugError);
  EXPECT_THROW(named_piece_from(frame.substr(0, 18)), BugError);
}

}  // namespace
}  // namespace slime::roles
