#include "config/adapter_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using AdapterTestWords = std::vector<std::string>;

TEST(AdapterWords, OfARunAreThoseOfTheCommandAndItsOwnInTheirPlace) {
  const AdapterTestWords command{
      "--lr", "1e-5", "--rollout-shuffle", "--adapter", "a=", "--run-dir", "runs/x"};
  const auto runs = adapter_words(command, AdapterTestWords{"a=--lr 3e-5", "b="}, "runs/x");
  ASSERT_EQ(runs.size(), 2);
  EXPECT_EQ(runs[0].name, "a");
  EXPECT_THAT(runs[0].words,
              ElementsAre("--rollout-shuffle", "--lr", "3e-5", "--run-dir", "runs/x/a"));
  EXPECT_THAT(runs[1].words,
              ElementsAre("--lr", "1e-5", "--rollout-shuffle", "--run-dir", "runs/x/b"));
}

TEST(AdapterWords, DataOfARunAreNotAddedToTheCommands) {
  const AdapterTestWords command{"--prompt-data", "all.jsonl", "--prompt-data=more.jsonl", "--lr",
                                 "1e-5"};
  const auto runs = adapter_words(command, AdapterTestWords{"a=--prompt-data own.jsonl"}, "x");
  EXPECT_THAT(runs[0].words,
              ElementsAre("--lr", "1e-5", "--prompt-data", "own.jsonl", "--run-dir", "x/a"));
}

TEST(AdapterWords, AnOtherNameOfAFlagIsReplacedToo) {
  const AdapterTestWords command{"--lora-r", "4", "--lora-target-modules", "q_proj", "v_proj"};
  const auto runs = adapter_words(
      command, AdapterTestWords{"a=--lora-rank 8", "b=--lora-target-modules k_proj"}, "x");
  EXPECT_THAT(runs[0].words, ElementsAre("--lora-target-modules", "q_proj", "v_proj", "--lora-rank",
                                         "8", "--run-dir", "x/a"));
  EXPECT_EQ(parse_flags(runs[1].words).config.target_modules.peek(), AdapterTestWords{"k_proj"});
}

TEST(AdapterWords, QuotesKeepBlanks) {
  const auto runs =
      adapter_words({}, AdapterTestWords{"a=--rollout-stop 'b  c'd \"\" --label-key=\"e f\""}, "x");
  EXPECT_THAT(runs[0].words,
              ElementsAre("--rollout-stop", "b  cd", "", "--label-key=e f", "--run-dir", "x/a"));
}

TEST(AdapterWords, OccurrencesOfAdapterAddUp) {
  const AdapterTestWords command{"--adapter", "a=--lr 1", "--adapter", "b="};
  EXPECT_THAT(parse_flags(command).config.adapter.peek(), ElementsAre("a=--lr 1", "b="));
}

std::string refusal_of_adapters(const AdapterTestWords& adapters) {
  try {
    adapter_words({}, adapters, "x");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(AdapterWords, WhatIsNoRunIsRefused) {
  EXPECT_THAT(refusal_of_adapters({"sums"}), HasSubstr("is NAME=FLAGS"));
  EXPECT_THAT(refusal_of_adapters({"../a=--lr 1"}), HasSubstr("is NAME=FLAGS"));
  EXPECT_THAT(refusal_of_adapters({"a=", "a="}), HasSubstr("there are two of this name"));
  EXPECT_THAT(refusal_of_adapters({"a=--lr '1"}), HasSubstr("a quote ' has no end"));
  EXPECT_THAT(refusal_of_adapters({"a=1e-5"}), HasSubstr("\"1e-5\": expected a flag"));
}

TEST(AdapterWords, FlagsOfAllAdaptersAreTheCommandsAlsoByOtherNames) {
  for (const char* own : {"--sglang-context-length 8", "--hf-checkpoint=m", "--fp32", "--dry-run",
                          "--async-max-concurrent-samples 4", "--wandb-key k", "--config f.yaml"}) {
    const std::string flag = std::string(own).substr(0, std::string(own).find_first_of(" ="));
    EXPECT_THAT(refusal_of_adapters({std::string("a=") + own}), HasSubstr("--adapter a: " + flag))
        << own;
    EXPECT_THAT(refusal_of_adapters({std::string("a=") + own}), HasSubstr("all adapters share"))
        << own;
  }
}

TEST(AdapterWords, TwoRunsDoNotWriteToOnePlace) {
  const AdapterTestWords command{"--save", "here"};
  std::vector<ParsedFlags> runs;
  for (const auto& own : adapter_words(command, AdapterTestWords{"a=", "b="}, "x")) {
    runs.push_back(parse_flags(own.words));
    runs.back().config.adapter_name = own.name;
  }
  EXPECT_THAT([&] { check_written_places(runs); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("--adapter b: --save here is that of adapter a too")));
  runs.back().config.save = "there";
  EXPECT_NO_THROW(check_written_places(runs));
}

TEST(AdapterWords, EachLineOfAnErrorSaysWhoseItIs) {
  const auto fail = [] { throw ConfigError(std::vector<std::string>{"one", "two\n  of it"}); };
  EXPECT_THAT([&] { in_words_of_adapter("a", fail); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("--adapter a: one\n--adapter a: two\n  of it")));
}

TEST(AdapterWords, RunsOnAGpuComputeIn16Bits) {
  const auto refusal = [](const char* dtype) {
    ParsedFlags flags =
        parse_flags(AdapterTestWords{"--device", "cuda", "--dtype", dtype, "--lora-rank", "4"});
    flags.config.adapter_name = "a";
    try {
      complete_and_validate(flags);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const char* expected =
      "--dtype float32: not with --adapter: a GPU has batches with several adapters in bfloat16";
  EXPECT_THAT(refusal("float32"), HasSubstr(expected));
  for (const char* dtype : {"bfloat16", "float16"})
    EXPECT_THAT(refusal(dtype), ::testing::Not(HasSubstr("a GPU has batches"))) << dtype;
}

TEST(AdapterWords, OtherCommandsThanTrainRefuseSeveralAdapters) {
  ParsedFlags flags = parse_flags(AdapterTestWords{"--adapter", "a=--lr 1"});
  EXPECT_THAT([&] { complete_and_validate(flags); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("--adapter: several runs at once are begun by slime train alone")));
}

}  // namespace
}  // namespace slime::config
