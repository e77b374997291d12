// Functions around samples and groups, in real hosts: python3 and the package beside the sources.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>

#include "core/error.h"
#include "plugin/filter.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"
#include "plugin/sample_hook.h"

namespace slime::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kFunctions = R"(
import os
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.rollout.rm_hub.native import score

async def group(args, samples, **kwargs):
    word = samples[0].response
    if word == "short": return [1.0]
    if word == "raise": raise KeyError("pred")
    if word == "nan": return [0.0, float("nan")]
    samples[1].metadata["of"] = len(samples)
    samples[1].status = type(samples[1]).Status.FAILED if word == "fail" else samples[1].status
    return [sample.index * 1.5 for sample in samples]

async def asks(args, sample, **kwargs):
    return await score("math", sample.response, sample.label, sample.metadata)

def keep(args, samples, **kwargs):
    word = samples[0].response
    if word == "why": return DynamicFilterOutput(keep=False, reason="so", keep_when_insufficient=True)
    if word == "text": return "no"
    samples[0].reward = 7
    samples[1].remove_sample = True
    return word != "drop"

def first(args, sample, *, rollout_id, evaluation):
    sample.metadata["first"] = [rollout_id, evaluation]

async def second(args, sample):
    if sample.response == "cut":
        sample.tokens = sample.tokens[:-1]
        sample.response_length -= 1
        sample.rollout_log_probs = sample.rollout_log_probs[:-1]
    if sample.response == "odd": sample.loss_mask = [1]
    if sample.response == "type": return 3
    sample.metadata["second"] = sample.metadata["first"][0] + 1
    return sample
)";

class PluginHooks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
    if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "own.py") << kFunctions;
  }
  ~PluginHooks() override {
    hosts_.reset();
    std::filesystem::remove_all(folder_);
  }

  void open(std::vector<std::pair<std::string, std::string>> hooks,
            std::function<void(Question, ReplyFn)> on_question = nullptr) {
    HostsConfig config{.logs = folder_ / "logs", .flags = {}, .hooks = {}, .hooks_of_first = {}};
    for (const auto& [hook, name] : hooks)
      config.hooks.push_back({.hook = hook, .path = (folder_ / "own.py").string() + ":" + name});
    config.on_question = std::move(on_question);
    hosts_ = std::make_unique<Hosts>(config);
  }

  static Sample sample_of(int64_t ordinal, const std::string& response) {
    Sample sample{.ordinal = ordinal, .group = 4};
    sample.prompt_length = 1;
    sample.tokens = {5, 6, 7};
    sample.log_probs = {-0.5F, -0.25F};
    sample.versions = {{3, 2}};
    sample.response = response;
    sample.status = Status::kCompleted;
    return sample;
  }
  static Group group_of(const std::string& response) {
    return {.ordinal = 4, .samples = {sample_of(8, response), sample_of(9, response)}};
  }

  template <typename T, typename Ask>
  static Expected<T> wait(const Ask& ask) {
    auto promise = std::make_shared<std::promise<Expected<T>>>();
    auto result = promise->get_future();
    ask([promise](Expected<T> answer) { promise->set_value(std::move(answer)); });
    return result.get();
  }
  Expected<Group> score_all(const std::string& response) {
    return wait<Group>(
        [&](auto answer) { score_group(*hosts_, 0, 20s, group_of(response), {}, answer); });
  }
  Expected<Filtered> filter_group(const std::string& response) {
    return wait<Filtered>(
        [&](auto answer) { filter(*hosts_, 0, 20s, group_of(response), {}, answer); });
  }
  Expected<Sample> hooked(const std::string& response, const std::vector<int>& hooks) {
    return wait<Sample>([&](auto answer) {
      const SampleHooks how{.timeout = 20s, .limits = {}, .rollout_id = 6, .is_evaluation = true};
      call_sample_hooks(*hosts_, hooks, how, sample_of(8, response), {}, answer);
    });
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("plugin_hooks_" + std::to_string(::getpid()));
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(PluginHooks, AGroupGetsItsRewardsFromOneCall) {
  open({{"reward", "group"}});
  const Expected<Group> scored = score_all("fine");
  ASSERT_TRUE(scored) << scored.error().message;
  EXPECT_EQ(scored->samples[0].reward, json::value(12.0));
  EXPECT_EQ(scored->samples[1].reward, json::value(13.5));
  EXPECT_EQ(scored->samples[1].metadata, (json::object{{"of", 2}}));
  EXPECT_EQ(scored->samples[0].tokens, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(score_all("fail")->samples[1].failure, "reward: the function set its status to failed");
}

TEST_F(PluginHooks, AGroupWithoutARewardForEachHasNone) {
  open({{"reward", "group"}});
  EXPECT_THAT(score_all("short").error().message, HasSubstr("1 rewards for 2 samples"));
  EXPECT_THAT(score_all("raise").error().message, HasSubstr("KeyError: 'pred' ("));
  EXPECT_THAT(score_all("nan").error().message, HasSubstr("reward 1 is nan"));
}

TEST_F(PluginHooks, AFilterSaysWhatIsTrainedAndMayChangeIt) {
  open({{"dynamic_filter", "keep"}});
  const Expected<Filtered> kept = filter_group("fine");
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_TRUE(kept->verdict.keep);
  EXPECT_EQ(kept->group.samples[0].reward, json::value(7));
  EXPECT_TRUE(kept->group.samples[1].remove_sample);
  EXPECT_FALSE(filter_group("drop")->verdict.keep);
  EXPECT_EQ(filter_group("drop")->verdict.reason, "no_reason");
  const Expected<Filtered> why = filter_group("why");
  EXPECT_EQ(why->verdict.reason, "so");
  EXPECT_TRUE(why->verdict.keep_when_insufficient);
}

TEST_F(PluginHooks, SampleHooksSeeWhatTheOneBeforeLeft) {
  open({{"sample_hook", "first"}, {"sample_hook", "second"}});
  const Expected<Sample> seen = hooked("fine", {0, 1});
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_EQ(seen->metadata, (json::object{{"first", {6, true}}, {"second", 7}}));
  EXPECT_EQ(seen->ordinal, 8);
  EXPECT_EQ(seen->versions, (std::vector<VersionRun>{{3, 2}}));
  const Expected<Sample> cut = hooked("cut", {0, 1});
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(cut->response_length(), 1);
  EXPECT_EQ(cut->versions, (std::vector<VersionRun>{{3, 1}}));
}

TEST_F(PluginHooks, ASampleHookThatLeavesNoSampleFails) {
  open({{"sample_hook", "first"}, {"sample_hook", "second"}});
  EXPECT_THAT(hooked("odd", {0, 1}).error().message,
              HasSubstr("Sample.loss_mask has 1 entries for 2 response tokens"));
  EXPECT_THAT(hooked("type", {0, 1}).error().message,
              HasSubstr("int is returned; it is a Sample or None"));
  EXPECT_THAT(hooked("fine", {1}).error().message, HasSubstr("KeyError: 'first'"));
}

TEST_F(PluginHooks, QuestionsOfAFunctionAreAnswered) {
  std::vector<std::string> rules;
  open({{"reward", "asks"}}, [&rules](const Question& question, const ReplyFn& reply) {
    rules.emplace_back(question.arguments.at("rule").as_string());
    if (question.arguments.at("response") == "refuse") return reply(failure("not today"));
    reply(ReplyValue{.value = {{"score", 0.25}}});
  });
  const auto reward = [this](const std::string& response) {
    return wait<Sample>(
        [&](auto answer) { score(*hosts_, 0, 20s, sample_of(1, response), {}, answer); });
  };
  EXPECT_EQ(reward("x")->reward, json::value(0.25));
  EXPECT_THAT(reward("refuse").error().message, HasSubstr("ProgramError: not today"));
  EXPECT_THAT(rules, ElementsAre("math", "math"));
}

TEST_F(PluginHooks, AReplyToAHostThatIsGoneIsDropped) {
  ReplyFn late;
  std::promise<void> asked;
  open({{"reward", "asks"}}, [&](const Question&, ReplyFn reply) {
    late = std::move(reply);
    asked.set_value();
  });
  score(*hosts_, 0, 20s, sample_of(1, "x"), {}, [](const Expected<Sample>&) {});
  asked.get_future().wait();
  hosts_.reset();
  late(ReplyValue{.value = {{"score", 1}}});
}

}  // namespace
}  // namespace slime::plugin
