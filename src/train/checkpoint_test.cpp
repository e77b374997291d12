#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "train/checkpoint_directory.h"
#include "train/network_for_tests.h"
#include "train/run_parts.h"

namespace slime::train {
namespace {

namespace fs = std::filesystem;

/// A directory that is gone with the test.
struct Scratch {
  fs::path path = fs::temp_directory_path() / ("slime_checkpoint_" + std::to_string(::getpid()));
  Scratch() { fs::remove_all(path); }
  ~Scratch() { fs::remove_all(path); }
};

const auto kIgnore = [](const std::string&) {};

std::vector<Sample> unscored_samples(int64_t seed) {
  std::vector<Sample> samples(2);
  for (int64_t i = 0; i < 2; ++i) {
    samples[i].prompt_length = 2;
    for (int64_t t = 0; t < 6; ++t)
      samples[i].tokens.push_back(static_cast<TokenId>((seed * 31 + i * 17 + t * 7) % 300));
  }
  return samples;
}

struct Trained {
  explicit Trained(const fs::path& model, const char* dtype)
      : network(model::load_network(model, model::Precision::of(dtype))) {
    TrainConfig config;
    config.objective = Objective::kSupervised;
    config.batching.global_batch_size = 2;
    config.batching.micro_batch_size = 2;
    config.lr = {.lr = 1e-3, .decay_samples = 100};
    trainer = std::make_unique<Trainer>(*network, config, clock);
  }
  void train(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step)
      trainer->train(make_supervised_batch(unscored_samples(step)));
  }
  SystemClock clock;
  std::unique_ptr<model::Network> network;
  std::unique_ptr<Trainer> trainer;
};

void write_text(const fs::path& folder, const char* text) {
  fs::create_directories(folder);
  std::ofstream(folder / "text") << text;
}

std::string text_in(const fs::path& folder) {
  std::string text;
  std::ifstream(folder / "text") >> text;
  return text;
}

TEST(PutInPlace, ExchangesADirectoryWithTheOneBefore) {
  const Scratch scratch;
  const fs::path place = scratch.path / "name";
  write_text(scratch.path / "first", "first");
  EXPECT_EQ(put_in_place(scratch.path / "first", place), fs::path());
  EXPECT_EQ(text_in(place), "first");
  for (const std::string before : {"first", "second"}) {  // twice: what was left is no obstacle
    write_text(scratch.path / "new", before == "first" ? "second" : "third");
    EXPECT_EQ(text_in(put_in_place(scratch.path / "new", place)), before);
    EXPECT_FALSE(fs::exists(scratch.path / "new"));
  }
  EXPECT_EQ(text_in(place), "third");
}

void expect_exact_resume(const char* dtype) {
  const Scratch scratch;
  Trained straight(kModel, dtype);
  straight.train(0, 6);

  Trained first(kModel, dtype);
  first.train(0, 3);
  save_checkpoint({.root = scratch.path, .model_source = kModel}, 3, *first.trainer,
                  {{"ledger", 42}});
  const auto found = find_checkpoint(scratch.path, kIgnore);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->iteration, 3);
  EXPECT_EQ(found->run.at("ledger"), 42);
  EXPECT_EQ(found->trainer, first.trainer->state());

  Trained second(found->directory, dtype);
  restore_trainer(*found, *second.trainer, 0, kIgnore);
  second.train(3, 6);
  EXPECT_TRUE(at::equal(second.network->weights().flat(), straight.network->weights().flat()));
  EXPECT_TRUE(at::equal(second.trainer->optimizer().owned().front().master,
                        straight.trainer->optimizer().owned().front().master));
}

TEST(Checkpoint, ResumesBitForBitInFloat32) { expect_exact_resume("float32"); }
TEST(Checkpoint, ResumesBitForBitInBfloat16WithItsMasterWeights) {
  expect_exact_resume("bfloat16");
}

TEST(Checkpoint, OfFloat32GoesOnInBfloat16WithoutItsMomentsAlone) {
  const Scratch scratch;
  Trained first(kModel, "float32");
  first.train(0, 1);
  save_checkpoint({.root = scratch.path, .model_source = kModel}, 1, *first.trainer, {});
  const auto found = find_checkpoint(scratch.path, kIgnore);
  ASSERT_TRUE(found.has_value());
  Trained second(found->directory, "bfloat16");
  try {
    restore_trainer(*found, *second.trainer, 0, kIgnore);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("has no master weights"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << "one line, not one for each tensor: " << said;
  }
  restore_trainer(*found, *second.trainer, kNoLoadOptim, kIgnore);
  EXPECT_EQ(second.trainer->state().num_updates, 0) << "zero moments begin at step 0";
  EXPECT_EQ(second.trainer->state().samples_done, first.trainer->state().samples_done);
}

/// The first moments are whole, the second are not.
TEST(Checkpoint, ThatDoesNotFitChangesNothing) {
  const Scratch scratch;
  Trained run(kModel, "float32");
  run.train(0, 2);
  const fs::path saved = save_checkpoint({.root = scratch.path}, 2, *run.trainer, {});
  run.train(2, 3);
  const Tensor before = run.trainer->optimizer().owned().front().first_moment.clone();
  const TrainerState state = run.trainer->state();
  const Checkpoint checkpoint = read_checkpoint(saved, 2);
  check_restorable(checkpoint, *run.trainer, 0, kIgnore);
  fs::rename(saved / "optimizer/exp_avg_sq.safetensors", scratch.path / "gone.safetensors");
  EXPECT_THROW(check_restorable(checkpoint, *run.trainer, 0, kIgnore), ConfigError);
  EXPECT_THROW(restore_trainer(checkpoint, *run.trainer, 0, kIgnore), ConfigError);
  EXPECT_TRUE(at::equal(run.trainer->optimizer().owned().front().first_moment, before));
  EXPECT_EQ(run.trainer->state(), state);
  fs::rename(scratch.path / "gone.safetensors", saved / "optimizer/exp_avg_sq.safetensors");
  restore_trainer(checkpoint, *run.trainer, 0, kIgnore);
  EXPECT_FALSE(at::equal(run.trainer->optimizer().owned().front().first_moment, before));
}

TEST(Checkpoint, FallsBackFromADamagedOneLoudlyAndNeverStartsOver) {
  const Scratch scratch;
  Trained run(kModel, "float32");
  save_checkpoint({.root = scratch.path}, 1, *run.trainer, {});
  run.train(0, 1);
  const fs::path newest = save_checkpoint({.root = scratch.path}, 2, *run.trainer, {});
  std::ifstream latest(scratch.path / "latest_checkpointed_iteration.txt");
  int64_t iteration = 0;
  latest >> iteration;
  EXPECT_EQ(iteration, 2);

  {
    std::fstream file(newest / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('!');
  }
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  const auto found = find_checkpoint(scratch.path, warn);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->iteration, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("model.safetensors has a wrong checksum"), std::string::npos)
      << warnings[0];

  fs::remove(found->directory / "config.json");
  EXPECT_THROW(find_checkpoint(scratch.path, warn), ConfigError);
}

TEST(Checkpoint, AFailedWriteLeavesTheOneBeforeAndNothingElse) {
  const Scratch scratch;
  write_checkpoint_directory(scratch.path, 1,
                             [](const fs::path& path) { std::ofstream(path / "a") << "x"; });
  EXPECT_THROW(write_checkpoint_directory(scratch.path, 2,
                                          [](const fs::path& path) {
                                            std::ofstream(path / "a") << "y";
                                            throw std::system_error(ENOSPC, std::generic_category(),
                                                                    "a");
                                          }),
               ConfigError);
  EXPECT_EQ(checkpoint_iterations(scratch.path), std::vector<int64_t>{1});
  EXPECT_EQ(checkpoint_damage(scratch.path / "iter_0000001"), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path), {}),
            2);  // the directory and the latest file
}

TEST(Checkpoint, AWriterThatWasKilledLeavesNoCheckpoint) {
  const Scratch scratch;
  write_checkpoint_directory(scratch.path, 1,
                             [](const fs::path& path) { std::ofstream(path / "a") << "x"; });
  fs::create_directory(scratch.path / ".unfinished-iter_0000002");
  EXPECT_EQ(checkpoint_iterations(scratch.path), std::vector<int64_t>{1});
  write_checkpoint_directory(scratch.path, 3,
                             [](const fs::path& path) { std::ofstream(path / "a") << "x"; });
  EXPECT_FALSE(fs::exists(scratch.path / ".unfinished-iter_0000002"));
}

TEST(Checkpoint, KeepsTheLastOnesAndReplacesOneOfTheSameName) {
  const Scratch scratch;
  for (const int64_t iteration : {1, 2, 3, 3}) {
    const fs::path written = write_checkpoint_directory(
        scratch.path, iteration, [](const fs::path& path) { std::ofstream(path / "a") << "x"; });
    remove_old_checkpoints(scratch.path, 2, written);
  }
  EXPECT_EQ(checkpoint_iterations(scratch.path), (std::vector<int64_t>{2, 3}));
}

TEST(Checkpoint, TheOneJustWrittenIsNeverAnOldOne) {
  const Scratch scratch;
  const auto fill = [](const fs::path& path) { std::ofstream(path / "a") << "x"; };
  for (const int64_t iteration : {100, 200})
    write_checkpoint_directory(scratch.path, iteration, fill);
  remove_old_checkpoints(scratch.path, 2, write_checkpoint_directory(scratch.path, 6, fill));
  EXPECT_EQ(checkpoint_iterations(scratch.path), (std::vector<int64_t>{6, 100, 200}));
  remove_old_checkpoints(scratch.path, 2, write_checkpoint_directory(scratch.path, 7, fill));
  EXPECT_EQ(checkpoint_iterations(scratch.path), (std::vector<int64_t>{7, 100, 200}));
}

TEST(Checkpoint, ALinkToOneThatIsReplacedAlwaysLeadsToAWholeOne) {
  const Scratch scratch;
  const auto fill = [](const fs::path& path) { std::ofstream(path / "a") << "x"; };
  const fs::path directory = write_checkpoint_directory(scratch.path, 3, fill);
  std::atomic<bool> is_over{false};
  int64_t num_missing = 0;
  std::jthread reader([&] {
    while (!is_over) num_missing += fs::exists(directory / "COMMITTED") ? 0 : 1;
  });
  for (int i = 0; i < 30; ++i) write_checkpoint_directory(scratch.path, 3, fill);
  is_over = true;
  reader.join();
  EXPECT_EQ(num_missing, 0);
}

TEST(Checkpoint, AllAreRemovedWithTheirLeftoversAndNothingElse) {
  const Scratch scratch;
  write_checkpoint_directory(scratch.path, 3,
                             [](const fs::path& path) { std::ofstream(path / "a") << "x"; });
  fs::create_directory(scratch.path / ".unfinished-iter_0000004");
  std::ofstream(scratch.path / "notes.txt") << "mine";
  remove_checkpoints(scratch.path);
  ASSERT_EQ(std::distance(fs::directory_iterator(scratch.path), {}), 1);
  EXPECT_TRUE(fs::exists(scratch.path / "notes.txt"));
}

TEST(Checkpoint, NoneAtAllIsNoError) {
  EXPECT_FALSE(find_checkpoint("/nonexistent/slime", kIgnore).has_value());
}

}  // namespace
}  // namespace slime::train
