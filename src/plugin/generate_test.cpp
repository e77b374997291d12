// Generate functions in real hosts: python3 and the package beside the sources.

#include "plugin/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class PluginGenerate : public ::testing::Test {
 protected:
  using Made = Expected<MadeSamples>;

  void SetUp() override {
    if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
    if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~PluginGenerate() override {
    hosts_.reset();
    std::filesystem::remove_all(folder_);
  }

  /// Hook 0 is `generate` of this code, hook 1 a plain reward.
  void open(const std::string& code) {
    const std::string path = (folder_ / "mine.py").string();
    std::ofstream(path) << "import asyncio, copy\nfrom slime.utils.types import Sample\n"
                        << code << "\ndef reward(args, sample): return 1\n";
    hosts_ = std::make_unique<Hosts>(HostsConfig{
        .logs = folder_ / "logs",
        .hooks = {{.hook = "generate", .path = path}, {.hook = "reward", .path = path}}});
  }
  std::future<Made> ask(int64_t ordinal) {
    Sample sample{.ordinal = ordinal, .prompt_length = 2};
    sample.tokens = {5, 6};
    const auto promise = std::make_shared<std::promise<Made>>();
    generate(*hosts_, {.timeout = 20s, .limits = {.vocab_size = 50, .max_tokens = 100}},
             {{"max_new_tokens", 3}}, std::move(sample), {},
             [promise](Made made) { promise->set_value(std::move(made)); });
    return promise->get_future();
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        ("slime_generate_test_" + std::to_string(::getpid()));
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(PluginGenerate, CountsWhatEnginesSampledAndNoSampleTrains) {
  open(
      "from slime import turns\n"
      "async def generate(args, sample, sampling_params):\n"
      "    meta = {'weight_version': '3'}\n"
      "    turns.note({'output_ids': [7, 8], 'meta_info': meta}, {'input_ids': [5, 6]})\n"
      "    turns.note({'output_ids': [9], 'meta_info': meta}, {'input_ids': [5, 6, 1]})\n"
      "    sample.append_response_tokens(args, tokens=[7, 8], log_probs=[-0.5] * 2, text='ja')\n"
      "    sample.status = Sample.Status.COMPLETED\n"
      "    return sample\n");
  const Made made = ask(3).get();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->untrained_tokens, 1);
}

TEST_F(PluginGenerate, ReturnsTheSampleWithItsTokens) {
  open(
      "async def generate(args, sample, sampling_params):\n"
      "    count = sampling_params['max_new_tokens']\n"
      "    sample.append_response_tokens(args, tokens=[7] * count, log_probs=[-0.5] * count, "
      "text='ja')\n"
      "    sample.status = Sample.Status.COMPLETED\n"
      "    return sample\n");
  const Made made = ask(3).get();
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->parts.size(), 1u);
  EXPECT_EQ(made->parts.front().ordinal, 3);
  EXPECT_EQ(made->parts.front().tokens, (std::vector<TokenId>{5, 6, 7, 7, 7}));
  EXPECT_EQ(made->parts.front().log_probs, (std::vector<float>{-0.5, -0.5, -0.5}));
  EXPECT_EQ(made->parts.front().response, "ja");
  EXPECT_FALSE(made->parts.front().rollout_id);
  EXPECT_FALSE(made->is_list);
}

TEST_F(PluginGenerate, AListOfOneIsAList) {
  open(
      "async def generate(args, sample, sampling_params):\n"
      "    sample.append_response_tokens(args, tokens=[7], log_probs=[-0.5])\n"
      "    return [sample]\n");
  const Made made = ask(0).get();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->parts.size(), 1u);
  EXPECT_TRUE(made->is_list);
}

TEST_F(PluginGenerate, PartsOfOneExecutionHaveACommonRolloutId) {
  open(
      "async def generate(args, sample, sampling_params):\n"
      "    sample.append_response_tokens(args, tokens=[7], log_probs=[-0.5])\n"
      "    parts = [sample, copy.deepcopy(sample)]\n"
      "    if sample.index: parts[0].rollout_id, parts[1].rollout_id = 1, sample.index\n"
      "    return parts\n");
  const Made without = ask(0).get();
  ASSERT_TRUE(without) << without.error().message;
  ASSERT_EQ(without->parts.size(), 2u);
  EXPECT_EQ(without->parts.back().rollout_id, 0);
  EXPECT_EQ(ask(1).get()->parts.back().rollout_id, 1);
  const Made different = ask(2).get();
  ASSERT_FALSE(different);
  EXPECT_THAT(different.error().message, HasSubstr("different rollout_ids"));
}

TEST_F(PluginGenerate, ManyConversationsGoOnAtOnceBesideAPlainFunction) {
  open(
      "there = 0\n"
      "async def generate(args, sample, sampling_params):\n"
      "    global there\n"
      "    there += 1\n"
      "    while there < 200: await asyncio.sleep(0.01)\n"
      "    sample.append_response_tokens(args, tokens=[7], log_probs=[-0.5])\n"
      "    return sample\n");
  std::vector<std::future<Made>> all;
  for (int64_t i = 0; i < 200; ++i) all.push_back(ask(i));
  for (auto& each : all) {
    const Made made = each.get();
    EXPECT_TRUE(made) << made.error().message;
  }
}

}  // namespace
}  // namespace slime::plugin
