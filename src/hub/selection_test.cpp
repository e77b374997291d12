#include "hub/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const HubName kModel{.kind = Kind::kModel, .repo = "a/b"};

HubName data_named(std::string part) {
  return {.kind = Kind::kDataset, .repo = "a/b", .part = std::move(part)};
}

template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FilesOfModel, AreItsTextsAndSafetensorsAndNothingThatRuns) {
  const std::vector<std::string> repo{".gitattributes",
                                      "README.md",
                                      "config.json",
                                      "consolidated.safetensors",
                                      "generation_config.json",
                                      "merges.txt",
                                      "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json",
                                      "modeling_b.py",
                                      "onnx/config.json",
                                      "original/params.json",
                                      "pytorch_model.bin",
                                      "pytorch_model.bin.index.json",
                                      "tokenizer.json",
                                      "tokenizer.model"};
  EXPECT_THAT(files_of_model(kModel, repo, Wanted::kConfig), ElementsAre("config.json"));
  EXPECT_THAT(files_of_model(kModel, repo, Wanted::kText),
              ElementsAre("config.json", "generation_config.json", "merges.txt",
                          "model.safetensors.index.json", "tokenizer.json", "tokenizer.model"));
  EXPECT_THAT(files_of_model(kModel, repo, Wanted::kModel),
              ElementsAre("config.json", "generation_config.json", "merges.txt",
                          "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json", "tokenizer.model"));
}

TEST(FilesOfModel, WithoutSafetensorsAreRefusedWithTheFormThatThereIs) {
  const auto refused = [](std::vector<std::string> repo) {
    return refusal([&] { files_of_model(kModel, repo, Wanted::kModel); });
  };
  EXPECT_THAT(refused({"config.json", "pytorch_model.bin"}), HasSubstr("can run code"));
  EXPECT_THAT(refused({"config.json", "b.gguf"}), HasSubstr("tools/gguf_to_hf.py"));
  EXPECT_THAT(refused({"adapter_config.json", "adapter_model.safetensors"}), HasSubstr("adapter"));
  EXPECT_THAT(refused({"README.md"}), HasSubstr("has no config.json; it has README.md"));
}

constexpr std::string_view kPage =
    "---\r\nlicense: mit\r\nconfigs:\r\n- config_name: main\r\n  data_files:\r\n"
    "  - split: train\r\n    path: main/train-*\r\n  - split: test\r\n    path:\r\n    - "
    "main/test-*\r\n"
    "- config_name: socratic\r\n  data_files: socratic/*.parquet\r\n---\r\n# Grade school\r\n";
const std::vector<std::string> kRepo{"README.md",
                                     "dataset_infos.json",
                                     "main/test-00000-of-00001.parquet",
                                     "main/train-00000-of-00002.parquet",
                                     "main/train-00001-of-00002.parquet",
                                     "main/train-notes.txt",
                                     "socratic/all.parquet"};

TEST(FilesOfData, AreThoseThatThePageNames) {
  const DataSelection train = files_of_data(data_named("train"), kRepo, kPage, "");
  EXPECT_THAT(train.files, ElementsAre("main/train-00000-of-00002.parquet",
                                       "main/train-00001-of-00002.parquet"));
  EXPECT_EQ(
      train.note,
      "data set a/b: configuration main of main, socratic; a/b:socratic/... would name another");
  EXPECT_THAT(files_of_data(data_named(""), kRepo, kPage, "test").files,
              ElementsAre("main/test-00000-of-00001.parquet"));
  const DataSelection other = files_of_data(data_named("socratic/train"), kRepo, kPage, "");
  EXPECT_THAT(other.files, ElementsAre("socratic/all.parquet"));
  EXPECT_EQ(other.note, "");
  EXPECT_THAT(files_of_data(data_named("socratic/all.parquet"), kRepo, kPage, "").files,
              ElementsAre("socratic/all.parquet"));
}

TEST(FilesOfData, AreFoundByTheWordsOfTheirNamesWithoutAPage) {
  const std::vector<std::string> repo{"data/train-1.jsonl.gz",
                                      "data/train-2.jsonl.zst",
                                      "eval/a.csv",
                                      "extra.jsonl",
                                      "state.json",
                                      "valid.json"};
  const auto files = [&](const char* split) {
    return files_of_data(data_named(split), repo, "# no head", "train").files;
  };
  EXPECT_THAT(files("train"), ElementsAre("data/train-1.jsonl.gz", "data/train-2.jsonl.zst"));
  EXPECT_THAT(files(""), ElementsAre("data/train-1.jsonl.gz", "data/train-2.jsonl.zst"));
  EXPECT_THAT(files("test"), ElementsAre("eval/a.csv"));
  EXPECT_THAT(files("validation"), ElementsAre("valid.json"));
  EXPECT_THAT(files("data/train"), ElementsAre("data/train-1.jsonl.gz", "data/train-2.jsonl.zst"));
  // Whole words alone: a trainer is no split.
  EXPECT_THAT(files_of_data(data_named("train"), {"trainer.jsonl", "latest.csv"}, "", "").files,
              ElementsAre("latest.csv", "trainer.jsonl"));
}

TEST(FilesOfData, ThatAreNotThereAreAnsweredWithThoseThatAre) {
  const auto refused = [&](const char* part, const std::vector<std::string>& repo) {
    return refusal([&] { files_of_data(data_named(part), repo, kPage, "dev"); });
  };
  EXPECT_THAT(refused("dev", kRepo),
              HasSubstr("has no split dev in its configuration main; it has train, test"));
  EXPECT_THAT(refused("hard/train", kRepo),
              HasSubstr("no configuration hard; it has main, socratic"));
  EXPECT_THAT(refused("", kRepo),
              HasSubstr("which of its splits train, test? For example a/b:train"));
  EXPECT_THAT(refused("main/x.parquet", kRepo),
              HasSubstr("has no file main/x.parquet; it has main/"));
  EXPECT_THAT(refused("train", {"load.py", "README.md"}), HasSubstr("a/b@refs/convert/parquet"));
}

TEST(PatternOf, MatchesTheFilesAndNoOther) {
  const std::vector<std::string> all{"d/a-1.csv", "d/a-2.csv", "d/a-3.csv", "d/b[1].csv"};
  EXPECT_EQ(pattern_of({"d/a-1.csv", "d/a-2.csv", "d/a-3.csv"}, all), "d/a-*.csv");
  EXPECT_EQ(pattern_of({"d/a-1.csv", "d/a-3.csv"}, all), "{d/a-1.csv,d/a-3.csv}");
  EXPECT_EQ(pattern_of({"d/b[1].csv"}, all), "d/b\\[1\\].csv");
}

}  // namespace
}  // namespace slime::hub
