// Real hosts beside a trainer: python3 and the package beside the sources. None of this needs torch.

#include "plugin/trainer_host.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/error.h"

namespace slime::plugin {
namespace {

using ::testing::HasSubstr;

class TrainerHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
    if (package_folder().empty()) GTEST_SKIP() << "the package is not beside this program";
    std::filesystem::create_directories(folder_);
  }
  ~TrainerHosts() override { std::filesystem::remove_all(folder_); }

  /// A host whose hook `init` does `code`.
  std::unique_ptr<TrainerHost> host(const std::string& code, double timeout = 20) {
    const auto path = folder_ / "hooks.py";
    std::ofstream(path) << code;
    return std::make_unique<TrainerHost>(
        TrainerHostConfig{.logs = folder_ / "logs",
                          .flags = {{"lr", 0.5}},
                          .hooks = {{.hook = "init", .path = path.string()}},
                          .timeout = std::chrono::duration<double>(timeout)});
  }
  static std::string reason(TrainerHost& host) {
    try {
      host.call(0, "sample 3", {});
    } catch (const FunctionError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string log() {
    std::ifstream file(folder_ / "logs" / "trainer-0.log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("slime_trainer_host_{}", ::getpid());
};

TEST_F(TrainerHosts, CallsAFunctionAgainAndAgain) {
  const auto own =
      host("def init(args):\n  args.n = getattr(args, 'n', 0) + 1\n  print(args.lr, args.n)\n");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(own->call(0, "", {}).value.empty());
  // The pipe is read while something is waited for.
  EXPECT_EQ(reason(*own), "nothing was thrown");
  EXPECT_THAT(log(), HasSubstr("0.5 1\n0.5 2\n0.5 3\n"));
}

TEST_F(TrainerHosts, WhatCannotBeResolvedIsAConfigurationErrorWithTheTraceback) {
  try {
    host("import no_such_module\n");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--custom-megatron-init-path"));
    EXPECT_THAT(error.what(), HasSubstr("No module named 'no_such_module'"));
    EXPECT_THAT(error.what(), HasSubstr("Traceback"));
  }
  EXPECT_THROW(TrainerHost({.python = "/bin/false", .logs = folder_}), ConfigError);
  EXPECT_THROW(TrainerHost({.python = "/no/such/python", .logs = folder_}), ConfigError);
}

TEST_F(TrainerHosts, AnExceptionIsSaidWithWhomItIsAboutAndTheHostGoesOn) {
  const auto own =
      host("def init(args):\n  if not hasattr(args, 'n'):\n    args.n = 1\n    1 / 0\n");
  const std::string said = reason(*own);
  EXPECT_THAT(said, HasSubstr("init function"));
  EXPECT_THAT(said, HasSubstr("hooks.py, sample 3: ZeroDivisionError: division by zero"));
  EXPECT_THAT(said, HasSubstr("Traceback"));
  EXPECT_EQ(reason(*own), "nothing was thrown");
}

TEST_F(TrainerHosts, ItsEndAndItsLatenessAreSaidAndThereIsNoOther) {
  const auto ended = host("import os\ndef init(args):\n  print('last words')\n  os._exit(7)\n");
  const std::string said = reason(*ended);
  EXPECT_THAT(said, HasSubstr("the plug-in host ended with exit code 7"));
  EXPECT_THAT(said, HasSubstr("last words"));
  EXPECT_THAT(reason(*ended), HasSubstr("its plug-in host has ended"));
  const auto late = host("import time\ndef init(args):\n  time.sleep(60)\n", 0.2);
  EXPECT_THAT(reason(*late), HasSubstr("it took longer than 0.2 s (--plugin-timeout-seconds)"));
  const auto coroutine =
      host("import asyncio\nasync def init(args):\n  await asyncio.sleep(60)\n", 0.2);
  EXPECT_THAT(reason(*coroutine), HasSubstr("later than its deadline"));
}

TEST_F(TrainerHosts, OutputOfAnySizeDoesNotHoldItUp) {
  const auto own = host("def init(args):\n  for _ in range(64): print('x' * 65536)\n");
  EXPECT_EQ(reason(*own), "nothing was thrown");
  own->call(0, "", {});
  EXPECT_GT(log().size(), std::size_t{4} << 20);
}

TEST_F(TrainerHosts, MemoryIsMappedAsItIsAnnounced) {
  // What the host has mapped is in its list of mappings under the memory's name.
  const auto own = host(
      "def init(args):\n"
      "  maps = open('/proc/self/maps').read().count('slime-tensors')\n"
      "  print('mapped', maps)\n");
  const SharedMemory first(4096), second(1 << 20);
  const int64_t number = own->share(first);
  own->call(0, "", {});
  own->share(second);
  own->call(0, "", {});
  own->forget(number);
  own->call(0, "", {});
  own->call(0, "", {});
  EXPECT_THAT(log(), HasSubstr("mapped 1\nmapped 2\nmapped 1\n"));
}

TEST(SharedMemory, IsZerosOfAFixedSize) {
  const SharedMemory memory(8192);
  EXPECT_EQ(memory.bytes(), 8192);
  EXPECT_EQ(memory.data()[8191], std::byte{0});
  std::memset(memory.data(), 7, 8192);
  EXPECT_NE(::ftruncate(memory.descriptor(), 1), 0);
  EXPECT_GT(available_memory_bytes(), 1 << 20);
}

}  // namespace
}  // namespace slime::plugin
