#include "hub/hub_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace slime::hub {
namespace {

/// "repo|revision|part|slice", or "path".
std::string parsed(std::string_view word, Kind kind) {
  const auto name = parse_hub_name(word, kind);
  return name ? name->repo + "|" + name->revision + "|" + name->part + "|" + name->slice : "path";
}

TEST(HubName, OfAModelIsOwnerAndNameAndPerhapsARevision) {
  EXPECT_EQ(parsed("Qwen/Qwen3-0.6B", Kind::kModel), "Qwen/Qwen3-0.6B|||");
  EXPECT_EQ(parsed("Qwen/Qwen3-0.6B@v1.1", Kind::kModel), "Qwen/Qwen3-0.6B|v1.1||");
  EXPECT_EQ(parsed("a/b@refs/pr/1", Kind::kModel), "a/b|refs/pr/1||");
  EXPECT_EQ(parsed("hf://Qwen/Qwen3-0.6B", Kind::kModel), "Qwen/Qwen3-0.6B|||");
  for (const char* path : {"model", "./Qwen/Qwen3", "/Qwen/Qwen3", "../a/b", "a/b/c", "a/", "/b",
                           "~/a", "a/b@", "a/b@../c", "a/b@x//y", "a b/c", "a/b:train", "", "a/-b"})
    EXPECT_EQ(parsed(path, Kind::kModel), "path") << path;
}

TEST(HubName, OfADataSetHasASplitAConfigurationOrAFileAndASlice) {
  EXPECT_EQ(parsed("openai/gsm8k", Kind::kDataset), "openai/gsm8k|||");
  EXPECT_EQ(parsed("openai/gsm8k:train", Kind::kDataset), "openai/gsm8k||train|");
  EXPECT_EQ(parsed("openai/gsm8k:train[:1000]", Kind::kDataset), "openai/gsm8k||train|[:1000]");
  EXPECT_EQ(parsed("openai/gsm8k:train@[5:-1]", Kind::kDataset), "openai/gsm8k||train|[5:-1]");
  EXPECT_EQ(parsed("openai/gsm8k@[:9]", Kind::kDataset), "openai/gsm8k|||[:9]");
  EXPECT_EQ(parsed("openai/gsm8k@main:socratic/test[7:]", Kind::kDataset),
            "openai/gsm8k|main|socratic/test|[7:]");
  EXPECT_EQ(parsed("a/b:data/rows.parquet", Kind::kDataset), "a/b||data/rows.parquet|");
  EXPECT_EQ(parsed("hf://datasets/a/b.jsonl:train", Kind::kDataset), "a/b.jsonl||train|");
  for (const char* path :
       {"data/rows.jsonl", "data/rows.jsonl@[1:2]", "data/a.csv", "data/a.json.gz", "rows.jsonl",
        "a/b:", "a/b:../c", "a/b:/c", "data/*.jsonl", "a/b/c"})
    EXPECT_EQ(parsed(path, Kind::kDataset), "path") << path;
}

TEST(HubName, AUrlOfAnotherKindIsRefused) {
  EXPECT_THROW(parse_hub_name("hf://datasets/a/b", Kind::kModel), ConfigError);
  EXPECT_THROW(parse_hub_name("hf://a/b", Kind::kDataset), ConfigError);
  EXPECT_THROW(parse_hub_name("hf://a", Kind::kModel), ConfigError);
}

TEST(HubName, WhatLiesHereIsAPath) {
  const auto before = std::filesystem::current_path();
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "hub_name_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "runs" / "one");
  std::filesystem::current_path(folder);
  EXPECT_FALSE(name_not_path("runs/one", Kind::kModel));
  EXPECT_FALSE(
      name_not_path("runs/two", Kind::kModel));  // a slip of the pen in a folder that is here
  EXPECT_TRUE(name_not_path("hf://runs/two", Kind::kModel));
  EXPECT_TRUE(name_not_path("Qwen/Qwen3-0.6B", Kind::kModel));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace slime::hub
