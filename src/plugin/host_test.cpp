// Real hosts: python3 and the package beside the sources.

#include "plugin/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class PluginHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
    if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~PluginHost() override {
    hosts_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }

  void open(const std::string& path, int num_hosts = 1, uint64_t memory_bytes = 0,
            bool repeats_lost_calls = false) {
    hosts_ = std::make_unique<Hosts>(HostsConfig{.num_hosts = num_hosts,
                                                 .logs = folder_ / "logs",
                                                 .flags = {{"reward_key", "score"}},
                                                 .hooks = {{.hook = "reward", .path = path}},
                                                 .memory_bytes = memory_bytes,
                                                 .repeats_lost_calls = repeats_lost_calls});
    hosts_->tell_by([this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      told_ += text + "\n";
    });
  }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  std::future<Expected<Sample>> ask(const std::string& response, int64_t ordinal = 0,
                                    std::chrono::duration<double> timeout = 20s,
                                    std::stop_token stop = {}) {
    Sample sample{.ordinal = ordinal};
    sample.response = response;
    sample.status = Status::kCompleted;
    auto promise = std::make_shared<std::promise<Expected<Sample>>>();
    auto result = promise->get_future();
    score(*hosts_, 0, timeout, std::move(sample), std::move(stop),
          [promise](Expected<Sample> scored) { promise->set_value(std::move(scored)); });
    return result;
  }
  /// The reward as text, or the reason.
  std::string reward(const std::string& response, std::chrono::duration<double> timeout = 20s) {
    return text_of(ask(response, 0, timeout).get());
  }
  static std::string text_of(const Expected<Sample>& scored) {
    return scored ? json_text(scored->reward) : scored.error().message;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("plugin_host_" + std::to_string(::getpid()));
  std::unique_ptr<Hosts> hosts_;

 private:
  std::mutex mutex_;
  std::string told_;
};

constexpr const char* kReward = R"(
import asyncio, ctypes, os, sys, time

async def reward(args, sample, **kwargs):
    word = sample.response
    if word == "record": return {args.reward_key: 0.5}
    if word == "raise": raise ValueError("no such luck")
    if word == "exit": os._exit(3)
    if word == "sys.exit": sys.exit(4)
    if word == "segfault": ctypes.string_at(0)
    if word == "sleep": await asyncio.sleep(1000)
    if word == "block": time.sleep(1000)
    if word == "text": return "much"
    if word == "nan": return float("nan")
    if word == "stubborn":
        try: await asyncio.sleep(1000)
        except asyncio.CancelledError: await asyncio.sleep(1000)
    if word == "loud": sys.stdout.write("x" * (12 << 20))
    if word == "tag":
        sample.metadata["seen"] = True
        sample.own = 1
        sample.response = "other"
        sample.train_metadata = {"a": 1}
    print("scored", word)
    return len(word)
)";

/// Ctrl-C: what blocks has its patience, not its deadline; a second time nothing whole can come.
TEST_F(PluginHost, ARewardThatBlocksDoesNotHoldUpTheEndOfTheRun) {
  std::atomic<bool> ends{false};
  std::promise<std::string> stuck;
  hosts_ = std::make_unique<Hosts>(
      HostsConfig{.logs = folder_ / "logs",
                  .flags = {{"reward_key", "score"}},
                  .hooks = {{.hook = "reward", .path = write("own.py", kReward)}},
                  .hurries = [&ends] { return ends.load(); },
                  .patience = 1s,
                  .on_stuck = [&stuck](const std::string& why) { stuck.set_value(why); }});
  EXPECT_EQ(reward("record", 1000s), R"({"score":0.5})");
  auto first = ask("block", 1, 1000s);
  ends = true;
  EXPECT_THAT(text_of(first.get()), HasSubstr("the function did not return"));
  EXPECT_EQ(reward("record", 1000s), R"({"score":0.5})") << "the step can end yet";
  auto second = ask("block", 7, 1000s);
  EXPECT_THAT(text_of(second.get()), HasSubstr("the function did not return"));
  EXPECT_EQ(stuck.get_future().get(), "sample 7: the function did not return");
}

TEST_F(PluginHost, GivesRewardsAndWhatTheFunctionChanged) {
  open(write("my_rewards.py", kReward));
  EXPECT_EQ(reward("four"), "4");
  EXPECT_EQ(reward("record"), R"({"score":0.5})");
  const Expected<Sample> tagged = ask("tag").get();
  ASSERT_TRUE(tagged);
  EXPECT_EQ(tagged->metadata, (json::object{{"seen", true}}));
  EXPECT_EQ(tagged->user_fields,
            (json::object{{"extra", {{"own", 1}}}, {"train_metadata", {{"a", 1}}}}));
  EXPECT_EQ(tagged->response, "other");
}

TEST_F(PluginHost, AFunctionIsFoundByFileNameAndByItsOwnName) {
  const std::string file = write("own.py", "def mine(args, sample, **kwargs): return 7\n");
  open(file + ":mine");
  EXPECT_EQ(reward("x"), "7");
}

TEST_F(PluginHost, WhatRaisesFailsAloneAndIsShownOnceForItsPlace) {
  open(write("my_rewards.py", kReward));
  EXPECT_THAT(reward("raise"), HasSubstr("ValueError: no such luck ("));
  EXPECT_THAT(reward("raise"), HasSubstr("my_rewards.py:7"));
  const std::string shown = told();
  EXPECT_THAT(shown, HasSubstr("sample 0: Traceback"));
  EXPECT_EQ(shown.find("Traceback"), shown.rfind("Traceback"));
  EXPECT_THAT(reward("sys.exit"), HasSubstr("SystemExit: 4"));
  EXPECT_THAT(reward("text"), HasSubstr("the reward is str; it is a number"));
  EXPECT_THAT(reward("nan"), HasSubstr("the reward is nan; it is a finite number"));
  EXPECT_EQ(reward("fine"), "4");
}

TEST_F(PluginHost, WhatIsTooLateFailsAndTheOthersGoOn) {
  open(write("my_rewards.py", kReward));
  auto slow = ask("sleep", 1, 0.3s);
  auto stubborn = ask("stubborn", 2, 0.3s);
  EXPECT_EQ(reward("fine"), "4");
  EXPECT_THAT(text_of(slow.get()), HasSubstr("took longer than 0.3 s"));
  EXPECT_THAT(text_of(stubborn.get()), HasSubstr("took longer than 0.3 s"));
  EXPECT_THAT(told(), Not(HasSubstr("plug-in host 0")));
}

TEST_F(PluginHost, ACrashFailsTheCallThatMakesItAndNoOther) {
  open(write("my_rewards.py", kReward));
  for (const std::string crash : {"exit", "segfault"}) {
    std::vector<std::future<Expected<Sample>>> calls;
    for (int i = 0; i < 20; ++i) calls.push_back(ask(i == 7 ? crash : "fine", i));
    for (int i = 0; i < 20; ++i) {
      const std::string said = text_of(calls[static_cast<std::size_t>(i)].get());
      if (i == 7) {
        EXPECT_THAT(said, HasSubstr(crash == "exit" ? "ended with exit code 3"
                                                    : "was killed by signal 11"));
      } else {
        EXPECT_EQ(said, "4") << i;
      }
    }
  }
}

TEST_F(PluginHost, AHostWhoseEventLoopIsBlockedIsReplaced) {
  open(write("my_rewards.py", kReward));
  auto blocks = ask("block", 1, 0.5s);
  auto behind = ask("fine", 2, 0.5s);
  EXPECT_THAT(text_of(blocks.get()), HasSubstr("let nothing else go on in its host"));
  EXPECT_EQ(text_of(behind.get()), "4");
}

TEST_F(PluginHost, OnlyThoseToBlameFailHoweverManyTheyAre) {
  open(write("my_rewards.py", kReward));
  std::vector<std::future<Expected<Sample>>> calls;
  const auto is_crash = [](int i) { return i == 0 || i == 7 || i == 8 || i == 39; };
  for (int i = 0; i < 40; ++i) calls.push_back(ask(is_crash(i) ? "exit" : "fine", i));
  for (int i = 0; i < 40; ++i) {
    const std::string said = text_of(calls[static_cast<std::size_t>(i)].get());
    if (is_crash(i)) {
      EXPECT_THAT(said, HasSubstr("ended with exit code 3")) << i;
    } else {
      EXPECT_EQ(said, "4") << i;
    }
  }
}

TEST_F(PluginHost, WhatHadNotBegunGoesOnInTheNextHost) {
  open(write("my_rewards.py", kReward));
  // The first holds the loop until it is late; the second begins in the host after that.
  auto hangs = ask("block", 1, 3s);
  auto crash = ask("exit", 2, 20s);
  EXPECT_THAT(text_of(crash.get()), HasSubstr("exit code 3"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(reward("fine"), "4");
  EXPECT_THAT(text_of(hangs.get()), HasSubstr("took longer than 3 s"));
}

/// What is called writes the sample's ordinal to `log`, and then does what its response says.
std::string noting_rewards(const std::filesystem::path& log) {
  return "LOG = '" + log.string() + "'\n" + R"(
import asyncio, os, time

async def reward(args, sample, **kwargs):
    with open(LOG, "a") as file: file.write(f"{sample.index}\n")
    word = sample.response
    if word == "wait": await asyncio.sleep(0.5)
    if word == "wait and exit":
        await asyncio.sleep(0.2)
        os._exit(3)
    if word == "child and exit": await asyncio.gather(asyncio.sleep(0), leave())
    if word == "thread and exit":
        await asyncio.sleep(0.2)
        await asyncio.to_thread(os._exit, 3)
    if word == "block": time.sleep(0.15)
    if word == "wait and block":
        await asyncio.sleep(0)
        time.sleep(0.15)
    return 4

async def leave():
    await asyncio.sleep(0.2)
    os._exit(3)
)";
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

TEST_F(PluginHost, AFunctionIsCalledOnceWhateverBecomesOfItsHost) {
  for (const std::string crash : {"wait and exit", "child and exit", "thread and exit"}) {
    const auto log = folder_ / "calls";
    std::filesystem::remove(log);
    open(write("noting.py", noting_rewards(log)));
    std::vector<std::future<Expected<Sample>>> calls;
    for (int i = 0; i < 6; ++i) calls.push_back(ask(i == 2 ? crash : i < 4 ? "wait" : "fine", i));
    for (int i = 0; i < 6; ++i) {
      const std::string said = text_of(calls[static_cast<std::size_t>(i)].get());
      if (i == 2) {
        EXPECT_EQ(said, "the plug-in host ended with exit code 3") << crash;
      } else if (i < 4) {
        EXPECT_EQ(
            said,
            "the plug-in host ended with exit code 3 in the call for sample 2 while this call "
            "waited, and it may not be made twice")
            << crash;
      } else {
        EXPECT_EQ(said, "4") << "it had an answer before";
      }
    }
    EXPECT_EQ(lines_of(log), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"})) << crash;
    EXPECT_THAT(told(), HasSubstr("plug-in host 0, in the call for sample 2: "));
    hosts_.reset();
  }
}

TEST_F(PluginHost, CallsThatWereLostAreMadeOnceMoreWhereTheFlagSaysSo) {
  const auto log = folder_ / "calls";
  open(write("noting.py", noting_rewards(log)), 1, 0, /*repeats_lost_calls=*/true);
  auto lost = ask("wait", 1);
  auto crash = ask("wait and exit", 2);
  EXPECT_THAT(text_of(crash.get()), HasSubstr("exit code 3"));
  EXPECT_EQ(text_of(lost.get()), "4");
  EXPECT_EQ(lines_of(log), (std::vector<std::string>{"1", "1", "2"}));
}

TEST_F(PluginHost, ADeadlineBeginsWithItsFunctionAndStandsStillWhileOthersBlock) {
  for (const std::string word : {"block", "wait and block"}) {
    const auto log = folder_ / "calls";
    std::filesystem::remove(log);
    open(write("noting.py", noting_rewards(log)));
    EXPECT_EQ(reward("fine"), "4") << "it has started";
    std::vector<std::future<Expected<Sample>>> calls;
    for (int i = 0; i < 20; ++i) calls.push_back(ask(word, i, 0.5s));  // 3 s in all
    for (auto& call : calls) EXPECT_EQ(text_of(call.get()), "4") << word;
    EXPECT_EQ(lines_of(log).size(), 21U) << word;
    EXPECT_THAT(told(), Not(HasSubstr("plug-in host 0")));
    hosts_.reset();
  }
}

TEST_F(PluginHost, ACancelledCallThatBlocksHoldsUpOthersNoLongerThanItsDeadline) {
  open(write("my_rewards.py", kReward));
  std::stop_source stop;
  auto dropped = ask("block", 1, 0.5s, stop.get_token());
  std::this_thread::sleep_for(200ms);  // it blocks
  stop.request_stop();
  EXPECT_EQ(reward("fine"), "4");
  EXPECT_THAT(told(), HasSubstr("a function that was cancelled held up its host"));
}

TEST_F(PluginHost, OneThatHoldsTooMuchIsReplaced) {
  open(write("my_rewards.py", R"(
import subprocess, time
held = []
async def reward(args, sample, **kwargs):
    if sample.response == "leak":
        for _ in range(24): held.append(b"x" * (32 << 20)); time.sleep(0.02)
        time.sleep(1000)
    if sample.response == "fork":
        held.extend(subprocess.Popen(["sleep", "1000"]) for _ in range(300))
        time.sleep(1000)
    return 4
)"),
       1, uint64_t{256} << 20);
  EXPECT_THAT(reward("leak"), HasSubstr("more than --plugin-memory-gb 0.25, and was killed"));
  EXPECT_EQ(reward("fine"), "4");
  EXPECT_THAT(reward("fork"), HasSubstr("processes with those that it started, more than 256"));
  EXPECT_EQ(reward("fine"), "4");
}

TEST_F(PluginHost, FiveHostsInARowWithoutAnAnswerAreEnough) {
  open(write("my_rewards.py", kReward));
  for (int i = 0; i < 5; ++i) EXPECT_THAT(reward("exit"), HasSubstr("exit code 3"));
  EXPECT_THAT(reward("fine"), HasSubstr("5 plug-in hosts in a row ended without an answer"));
}

TEST_F(PluginHost, WhatNobodyWaitsForAnyMoreIsCancelled) {
  open(write("my_rewards.py", R"(
import asyncio
cancelled = 0
async def reward(args, sample, **kwargs):
    global cancelled
    if sample.response == "count": return cancelled
    try: await asyncio.sleep(1000)
    except asyncio.CancelledError: cancelled += 1; raise
)"));
  std::stop_source stop;
  auto dropped = ask("sleep", 1, 20s, stop.get_token());
  EXPECT_EQ(reward("count"), "0");
  stop.request_stop();
  const auto begin = std::chrono::steady_clock::now();
  while (reward("count") != "1") ASSERT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST_F(PluginHost, WhatItPrintsIsInALogOfBoundedGrowth) {
  open(write("my_rewards.py", kReward));
  EXPECT_EQ(reward("fine"), "4");
  EXPECT_EQ(reward("loud"), "4");
  hosts_.reset();
  std::ostringstream log;
  log << std::ifstream(folder_ / "logs" / "host-0.log").rdbuf();
  EXPECT_THAT(log.str().substr(0, 100), HasSubstr("scored fine"));
  EXPECT_LT(log.str().size(), (8U << 20) + 1000);
}

TEST_F(PluginHost, SeveralHostsShareTheCalls) {
  open(write("my_rewards.py",
             "import os, time\ndef reward(args, sample, **k):\n  time.sleep(0.05)\n  return "
             "os.getpid()\n"),
       2);
  std::vector<std::future<Expected<Sample>>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(ask("x", i));
  std::vector<std::string> processes;
  for (auto& call : calls) processes.push_back(text_of(call.get()));
  std::ranges::sort(processes);
  EXPECT_NE(processes.front(), processes.back());
}

TEST_F(PluginHost, WhatCannotBeImportedIsAConfigurationErrorWithPythonsWords) {
  const std::string file = write("broken.py", "import no_such_module\n");
  try {
    open(file);
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--custom-rm-path " + file));
    EXPECT_THAT(error.what(), HasSubstr("No module named 'no_such_module'"));
    EXPECT_THAT(error.what(), HasSubstr("line 1"));
  }
}

TEST_F(PluginHost, AnInterpreterThatIsNoneIsAConfigurationError) {
  for (const auto& [python, words] : {std::pair{"/no/such/python", "No such file"},
                                      std::pair{"/bin/false", "ended with exit code 1"}}) {
    try {
      Hosts({.python = python, .logs = folder_, .hooks = {{"reward", "a.b"}}});
      FAIL() << "it was taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("--plugin-python ") + python));
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace slime::plugin
