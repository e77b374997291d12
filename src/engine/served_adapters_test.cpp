#include "engine/served_adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "model/adapter_files.h"
#include "model/golden_models_for_tests.h"
#include "model/staged_reader.h"

namespace slime::engine {
namespace {

class ServedAdaptersTest : public ::testing::Test {
 protected:
  std::unique_ptr<model::Network> network_ =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));

  static std::string folder(const char* name) {
    return std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3/" + name;
  }
  static void load(ServedAdapters& adapters, const char* name, bool is_pinned = false,
                   bool replaces = false) {
    const auto loaded = adapters.load(name, folder("qv_r8"), is_pinned, replaces);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
};

TEST_F(ServedAdaptersTest, TheOneUsedLongestAgoGoesForAnother) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "a");
  load(adapters, "b");
  EXPECT_NE(adapters.find("a"), nullptr);  // is used
  load(adapters, "c");
  EXPECT_EQ(adapters.find("b"), nullptr);
  EXPECT_EQ(adapters.names(), "a, c");
}

TEST_F(ServedAdaptersTest, PinnedOnesAndThoseInUseStay) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "pinned", true);
  load(adapters, "running");
  const ServedAdapters::Handle request = adapters.find("running");
  const auto refused = adapters.load("more", folder("qv_r8"), false, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("--max-loaded-loras"));
}

TEST_F(ServedAdaptersTest, ANameThatIsLoadedAgainIsAnotherVersion) {
  ServedAdapters adapters(*network_, 2);
  load(adapters, "a");
  const ServedAdapters::Handle before = adapters.find("a");
  EXPECT_FALSE(adapters.load("a", folder("patterns"), false, false));
  load(adapters, "a", false, true);
  const ServedAdapters::Handle after = adapters.find("a");
  EXPECT_NE(after->number, before->number);
  EXPECT_NE(after->slot, before->slot);  // a request may still compute with the first
  EXPECT_NE(network_->adapters()->at(before->slot), nullptr);
}

TEST_F(ServedAdaptersTest, WholeModulesAreRefusedByName) {
  const auto network =
      model::load_network(golden_models::directory("llama"), model::Precision::of("float32"));
  ServedAdapters adapters(*network, 2);
  const auto refused = adapters.load(
      "a", std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/llama/saved_norm", false, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("input_layernorm.weight"));
}

/// A GPU whose kernels take no pair of this rank.
class TablesWithoutARank final : public kernels::AdapterTables {
 public:
  explicit TablesWithoutARank(int64_t rank) : rank_(rank) {}
  void check_pairs(const std::vector<const kernels::LowRankPair*>& pairs) const override {
    for (const kernels::LowRankPair* pair : pairs)
      if (pair->a.value.size(0) == rank_) throw ConfigError("no kernel for this rank");
  }
  bool place_pairs(std::span<kernels::MatrixAdapters* const> /*matrices*/) const override {
    ++num_places;
    return false;
  }
  mutable int num_places = 0;

 private:
  int64_t rank_;
};

TEST_F(ServedAdaptersTest, WhatAGpuCannotMultiplyIsRefusedBeforeAnythingChanges) {
  ServedAdapters adapters(*network_, 1);
  const TablesWithoutARank tables(8);
  network_->set_adapters(
      std::make_shared<model::Adapters>(*network_, /*num_slots=*/2, /*tables=*/&tables));
  ASSERT_TRUE(adapters.load("fits", folder("patterns"), false, false));
  const ServedAdapters::Handle before = adapters.find("fits");
  const int places = tables.num_places;
  const int64_t changes = network_->adapters()->num_changes();
  int num_pauses = 0;
  const auto count_pause = [&](const std::function<void()>& body) {
    ++num_pauses;
    body();
    return true;
  };
  adapters.change_at(count_pause, count_pause);
  for (const char* name : {"fits", "other"}) {  // in the place of one, and where one would go
    const auto refused = adapters.load(name, folder("qv_r8"), false, /*replaces=*/true);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().message, "no kernel for this rank");
  }
  EXPECT_EQ(adapters.find("fits"), before);
  EXPECT_EQ(adapters.names(), "fits");
  EXPECT_EQ(num_pauses, 0) << "the engine does not stand still for it";
  EXPECT_EQ(tables.num_places, places);
  EXPECT_EQ(network_->adapters()->num_changes(), changes);
  EXPECT_EQ(network_->adapters()->at(1 - before->slot), nullptr);
}

/// How often slots changed between two steps, and beside steps.
struct Moments {
  int between = 0, beside = 0;

  explicit Moments(ServedAdapters& adapters) {
    const auto counted = [](int& count) {
      return [&count](const std::function<void()>& body) {
        ++count;
        body();
        return true;
      };
    };
    adapters.change_at(counted(between), counted(beside));
  }
  std::pair<int, int> seen() const { return {between, beside}; }
};

TEST_F(ServedAdaptersTest, NoStepIsWaitedForWhereStepsOfOtherRowsDoNotReadThem) {
  ServedAdapters adapters(*network_, 1);
  Moments moments(adapters);
  load(adapters, "a");
  EXPECT_EQ(moments.seen(), std::pair(1, 0)) << "a CPU has no tables";
  const TablesWithoutARank tables(/*rank=*/1000);
  network_->set_adapters(
      std::make_shared<model::Adapters>(*network_, /*num_slots=*/2, /*tables=*/&tables));
  for (int i = 0; i < 3; ++i) load(adapters, "a", false, /*replaces=*/true);
  EXPECT_EQ(moments.seen(), std::pair(1, 3));
  EXPECT_EQ(tables.num_places, 3) << "what goes and what comes at once";
}

TEST(ServedExperts, ComeAndGoBetweenSteps) {
  const auto network =
      model::load_network(golden_models::directory("qwen3_moe"), model::Precision::of("float32"));
  ServedAdapters adapters(*network, 1);
  const TablesWithoutARank tables(/*rank=*/1000);
  network->set_adapters(
      std::make_shared<model::Adapters>(*network, /*num_slots=*/2, /*tables=*/&tables));
  Moments moments(adapters);
  const auto load = [&](const char* name) {
    const std::string folder = std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3_moe/";
    ASSERT_TRUE(adapters.load("a", folder + name, false, /*replaces=*/true));
  };
  load("attention");
  EXPECT_EQ(moments.seen(), std::pair(0, 1));
  load("experts_each");
  EXPECT_EQ(moments.seen(), std::pair(1, 1)) << "steps read experts of all slots";
  load("attention");
  EXPECT_EQ(moments.seen(), std::pair(1, 2)) << "requests may still take the experts";
  load("attention");
  EXPECT_EQ(moments.seen(), std::pair(2, 2)) << "they go";
}

TEST_F(ServedAdaptersTest, ASlotKeepsItsAdapterWhereAnotherDoesNotFit) {
  const TablesWithoutARank tables(8);
  model::Adapters adapters(*network_, /*num_slots=*/2, /*tables=*/&tables);
  const auto tensors = [&](const char* name) {
    const model::AdapterFile file(folder(name), network_->config());
    auto made = std::make_shared<model::AdapterTensors>(network_->config(), network_->weights(),
                                                        file.form(), comm::Mesh::single());
    file.read_into(*made);
    return made;
  };
  const auto fits = tensors("patterns");
  adapters.put(0, fits);
  const int places = tables.num_places;
  EXPECT_THROW(adapters.put(0, tensors("qv_r8")), ConfigError);
  EXPECT_EQ(adapters.at(0), fits);
  EXPECT_EQ(tables.num_places, places);
}

struct FolderCase {
  const char *model, *name;
};
class StagedAdapterFiles : public ::testing::TestWithParam<FolderCase> {};

TEST_P(StagedAdapterFiles, HaveTheNumbersOfThoseReadOneByOne) {
  const auto network = model::load_network(golden_models::directory(GetParam().model),
                                           model::Precision::of("float32"));
  const std::string folder = std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/" +
                             GetParam().model + "/" + GetParam().name;
  const model::AdapterFile file(folder, network->config());
  const auto blank = [&] {
    return std::make_shared<model::AdapterTensors>(network->config(), network->weights(),
                                                   file.form(), comm::Mesh::single());
  };
  const auto one_by_one = blank(), staged = blank();
  file.read_into(*one_by_one);
  model::StagedReader reader(at::kCPU, {.num_blocks = 2, .block_bytes = 4096, .num_threads = 3});
  file.read_into(*staged, reader);
  EXPECT_TRUE(staged->weights().flat().equal(one_by_one->weights().flat()));

  // What is no number is told by its name.
  const model::NamedWeight& broken = staged->weights().tensors().back();
  const at::NoGradGuard no_grad;
  model::Weights::view(staged->weights().flat(), broken).view({-1})[0] = NAN;
  const TemporaryFolder copy("slime-adapter");
  model::write_adapter(copy.path(), *staged);
  const model::AdapterFile with_nan(copy.path(), network->config());
  try {
    with_nan.read_into(*blank(), reader);
    FAIL() << "a NaN was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("holds what is no finite"));
    EXPECT_EQ(error.what(), [&]() -> std::string {
      try {
        with_nan.read_into(*blank());
        return "none";
      } catch (const ConfigError& other) {
        return other.what();
      }
    }());
  }
}

INSTANTIATE_TEST_SUITE_P(OfModels, StagedAdapterFiles,
                         ::testing::Values(FolderCase{"qwen3", "all_linear_rslora"},
                                           FolderCase{"llama", "saved_norm"},
                                           FolderCase{"qwen3_moe", "experts_each"},
                                           FolderCase{"qwen3_moe", "experts_fused"}),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + info.param.name;
                         });

/// Recorded steps find pairs of attention in tables, and read those of experts where they are.
TEST(ServedExperts, ComeAndGoWithOtherRecordedSteps) {
  const auto network =
      model::load_network(golden_models::directory("qwen3_moe"), model::Precision::of("float32"));
  const auto tensors = [&](const char* name) {
    const std::string folder = std::string(SLIME_SOURCE_DIR) + "/tests/fixtures/lora/qwen3_moe/";
    const model::AdapterFile file(folder + name, network->config());
    auto made = std::make_shared<model::AdapterTensors>(network->config(), network->weights(),
                                                        file.form(), comm::Mesh::single());
    file.read_into(*made);
    return made;
  };
  const TablesWithoutARank tables(/*rank=*/1000);
  model::Adapters adapters(*network, /*num_slots=*/3, /*tables=*/&tables);
  auto changes = [&, last = int64_t{0}]() mutable {
    return adapters.num_changes() - std::exchange(last, adapters.num_changes());
  };
  for (const auto& [name, is_read] :
       {std::pair{"attention", false}, std::pair{"experts_each", true}}) {
    adapters.put(0, tensors(name));
    adapters.put(1, tensors(name));
    changes();
    adapters.put(2, tensors(name));
    EXPECT_EQ(changes() > 0, is_read) << name;
    adapters.put(2, nullptr);
    EXPECT_EQ(changes() > 0, is_read) << name;
  }
}

}  // namespace
}  // namespace slime::engine
