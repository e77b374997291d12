/// The examples of docs/data.md: each loads, and trains on what the page shows.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "buffer/data_source.h"
#include "config/parse_flags.h"
#include "core/error.h"
#include "setup/prompts.h"
#include "setup/supervised.h"

namespace slime::setup {
namespace {

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct Example {
  std::vector<std::string> flags;
  std::string rows;
  std::string trained;  // empty: not shown
};

std::vector<Example> examples() {
  std::ifstream page(SLIME_SOURCE_DIR "/docs/data.md");
  std::vector<Example> found;
  std::string* block = nullptr;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("```")) {
      if (block != nullptr) *block += line + "\n";
    } else if (block != nullptr) {
      block = nullptr;
    } else if (line.starts_with("```jsonl")) {
      std::istringstream words(line.substr(8));
      Example& example = found.emplace_back();
      for (std::string word; words >> word;) example.flags.push_back(word);
      block = &example.rows;
    } else if (line == "```trained") {
      block = &found.back().trained;
    }
  }
  return found;
}

ModelText page_text() {
  ModelText text;
  text.tokenizer = text::Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm");
  text.chat = text::ChatTemplate::from_source(kChatMl, {}, "ChatML");
  return text;
}

std::string shown(const Sample& sample, const text::Tokenizer& tokenizer) {
  std::string text;
  bool is_open = false;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const auto prompt = static_cast<std::size_t>(sample.prompt_length);
    const bool is_trained = i >= prompt && sample.loss_mask[i - prompt] != 0;
    if (is_trained != is_open) text += is_trained ? "[[" : "]]";
    is_open = is_trained;
    text += tokenizer.token_bytes(sample.tokens[i]);
  }
  return text + (is_open ? "]]" : "");
}

TEST(DataPage, EveryExampleLoadsAndTrainsOnWhatThePageShows) {
  const ModelText text = page_text();
  const std::string path = (std::filesystem::path(testing::TempDir()) / "data_page.jsonl").string();
  int64_t num_shown = 0;
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.rows);
    std::ofstream(path) << example.rows;
    config::ParsedFlags flags = config::parse_flags(example.flags);
    ASSERT_TRUE(flags.problems.empty()) << flags.problems.front();
    config::RunConfig& config = flags.config;
    config.prompt_data = {path};
    config.hf_checkpoint = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
    if (config.is_preference()) config.n_samples_per_prompt = 2;
    const buffer::Dataset dataset = load_prompts(config, text);
    EXPECT_EQ(dataset.size(), std::ranges::count(example.rows, '\n'));
    EXPECT_TRUE(dataset.left_out().empty());
    if (!config.trains_on_rows()) continue;
    const SupervisedRows rows(config, text);
    buffer::DataSource source(&dataset, {.samples_per_prompt = config.n_samples_per_prompt});
    std::string trained;
    for (Group& group : source.take(dataset.size())) {
      ASSERT_EQ(rows.complete(group), std::nullopt);
      for (const Sample& sample : group.samples) {
        const std::string one = shown(sample, *text.tokenizer);
        trained += one + "\n";
      }
    }
    if (example.trained.empty()) continue;
    EXPECT_EQ(trained, example.trained);
    ++num_shown;
  }
  EXPECT_GE(num_shown, 6);
}

TEST(DataPage, AConversationThatWasStoredAsTextIsRefusedAndNotTrainedAsText) {
  const ModelText text = page_text();
  config::RunConfig config =
      config::parse_flags(
          std::vector<std::string>{"--loss-type", "sft_loss", "--input-key", "messages"})
          .config;
  config.hf_checkpoint = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
  const SupervisedRows rows(config, text);
  const auto row_of = [](std::string_view said) {
    buffer::DatasetRow row;
    row.prompt = said;
    return row;
  };
  EXPECT_THROW(rows.left_out(row_of(R"([{"role": "user", "content": "hi"}])")), ConfigError);
  EXPECT_EQ(rows.left_out(row_of(R"([{"a": 1}])")), std::nullopt);
}

TEST(DataPage, APairOfTheSameTokensIsLeftOut) {
  const ModelText text = page_text();
  config::RunConfig config;
  config.loss_type = "dpo_loss";
  config.hf_checkpoint = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
  const SupervisedRows rows(config, text);
  const auto row_of = [](json::value chosen, json::value rejected) {
    buffer::DatasetRow row;
    row.prompt = "1+1=";
    row.metadata = {{"chosen", std::move(chosen)}, {"rejected", std::move(rejected)}};
    return row;
  };
  const json::array message{json::object{{"role", "assistant"}, {"content", "2"}}};
  EXPECT_EQ(rows.left_out(row_of("2", "2")), "chosen_is_rejected");
  EXPECT_EQ(rows.left_out(row_of("2", message)), "chosen_is_rejected");  // as they are rendered
  EXPECT_EQ(rows.left_out(row_of("2", "3")), std::nullopt);
}

TEST(DataPage, NamesEveryReasonForWhichARowIsLeftOut) {
  std::ifstream page(SLIME_SOURCE_DIR "/docs/data.md");
  const std::string words(std::istreambuf_iterator<char>(page), {});
  for (const std::string_view reason :
       {"no_trained_token", "chosen_is_rejected", "longer_than_the_model",
        "longer_than_max_context_len", "prompt_longer_than_max_prompt_len",
        "response_longer_than_max_response_len"})
    EXPECT_NE(words.find(reason), std::string::npos) << reason;
}

}  // namespace
}  // namespace slime::setup
