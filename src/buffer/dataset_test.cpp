#include "buffer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "buffer/sliced_path.h"
#include "core/error.h"
#include "core/golden_test.h"

namespace slime::buffer {
namespace {

using testing::HasSubstr;

std::string file_with(const std::string& name, const std::string& content) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

/// One token per byte.
std::vector<TokenId> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

/// "role:content" of each message, and the number of tools.
std::string render(const json::array& messages, const json::array& tools) {
  std::string text;
  for (const json::value& message : messages) {
    text += std::string(message.at("role").as_string()) + ":" +
            std::string(message.at("content").as_string()) + "|";
  }
  return text + std::to_string(tools.size());
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

DatasetConfig config_for(std::vector<std::string> paths) {
  DatasetConfig config;
  config.paths = std::move(paths);
  return config;
}

TEST(Dataset, ReadsPromptLabelMetadataAndTools) {
  DatasetConfig config = config_for({file_with(
      "parts.jsonl", R"({"q": "2+3?", "a": 5, "m": {"rm_type": "math"}, "t": "[{\"name\": \"f\"}]"}

{"q": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "a": null})")});
  config.keys = {.input = "q", .label = "a", .metadata = "m", .tools = "t"};
  config.apply_chat_template = true;
  const Dataset dataset = Dataset::load(config, render, bytes_of);
  ASSERT_EQ(dataset.size(), 2);
  const Prompt first = dataset.prompt(0);
  EXPECT_EQ(first.text, "user:2+3?|1");
  EXPECT_EQ(first.tokens, bytes_of(first.text));
  EXPECT_EQ(first.source, json::value("2+3?"));
  EXPECT_EQ(first.label, json::value(5));
  EXPECT_EQ(json_text(first.metadata), R"({"rm_type":"math","tools":[{"name":"f"}]})");
  EXPECT_EQ(dataset.prompt(1).text, "system:s|user:u|0");
  EXPECT_TRUE(dataset.prompt(1).label.is_null());
}

TEST(Dataset, WithoutATemplateAStringIsThePromptAndAListStaysAList) {
  const DatasetConfig config = config_for({file_with(
      "plain.jsonl",
      "{\"input\": \"caf\xc3\xa9\"}\n{\"input\": [{\"role\": \"user\", \"content\": \"u\"}]}\n")});
  const Dataset dataset = Dataset::load(config, nullptr, bytes_of);
  EXPECT_EQ(dataset.prompt(0).text, "caf\xc3\xa9");
  EXPECT_TRUE(dataset.prompt(1).tokens.empty());
  EXPECT_TRUE(dataset.prompt(1).source.is_array());
}

TEST(Dataset, AnIntegerIsAPromptOfItsDigits) {
  const DatasetConfig config = config_for({file_with("tasks.jsonl", R"({"input": 17})"
                                                                    "\n")});
  const Dataset dataset = Dataset::load(config, nullptr, bytes_of);
  EXPECT_EQ(dataset.prompt(0).text, "17");
  EXPECT_EQ(dataset.prompt(0).source, json::value("17"));
}

TEST(Dataset, NamesEveryBrokenLineAtOnce) {
  std::string content;
  for (int line = 1; line <= 9; ++line)
    content += line == 7 ? "{\"input\": \"x\"\n" : "{\"input\": \"x\"}\n";
  content += "{\"prompt\": \"x\"}\n[1]\n";
  const std::string path = file_with("broken.jsonl", content);
  const std::string message =
      message_of([&] { Dataset::load(config_for({path}), nullptr, bytes_of); });
  EXPECT_THAT(message, HasSubstr(path + ", line 7: not valid JSON"));
  EXPECT_THAT(message,
              HasSubstr(path + ", line 10: no field \"input\" (--input-key); the row has prompt"));
  EXPECT_THAT(message, HasSubstr(path + ", line 11: a row should be a JSON object"));
}

TEST(Dataset, ReportsATemplateErrorWithItsLine) {
  DatasetConfig config = config_for({file_with("roles.jsonl", "{\"input\": \"x\"}\n")});
  config.apply_chat_template = true;
  const RenderFn refuse = [](const json::array&, const json::array&) -> std::string {
    throw ConfigError("roles must alternate");
  };
  EXPECT_THAT(message_of([&] { Dataset::load(config, refuse, bytes_of); }),
              HasSubstr("line 1: roles must alternate"));
}

TEST(Dataset, ReportsARowThatTheCallerRefusesWithItsLine) {
  const std::string path = file_with(
      "refused.jsonl", "{\"input\": \"a\"}\n{\"input\": \"b\", \"metadata\": {\"rm_type\": 7}}\n");
  DatasetConfig config = config_for({path});
  config.check_row = [](const DatasetRow& row) {
    if (row.metadata.contains("rm_type")) throw ConfigError("no such reward");
  };
  EXPECT_THAT(message_of([&] { Dataset::load(config, nullptr, bytes_of); }),
              HasSubstr(path + ", line 2: no such reward"));
}

TEST(Dataset, StopsReadingWhenManyRowsAreBad) {
  std::string content;
  for (int line = 0; line < 1000; ++line) content += "{\"input\": \"x\"}\n";
  DatasetConfig config = config_for({file_with("endless.jsonl", content)});
  config.num_threads = 1;
  int calls = 0;
  const TokenizeFn refuse = [&](std::string_view) -> std::vector<TokenId> {
    ++calls;
    throw ConfigError("the template took more than 20000000 steps");
  };
  const std::string message = message_of([&] { Dataset::load(config, nullptr, refuse); });
  EXPECT_EQ(calls, 10);
  EXPECT_THAT(message, HasSubstr("(and lines 2 to 10)"));
  EXPECT_THAT(message, HasSubstr("the rows after these were not read"));
}

TEST(Dataset, HandsOverWhateverElseAThreadMeets) {
  const DatasetConfig config = config_for({file_with("bug.jsonl", "{\"input\": \"x\"}\n")});
  EXPECT_THROW(
      Dataset::load(config, nullptr,
                    [](std::string_view) -> std::vector<TokenId> { throw BugError("bug"); }),
      BugError);
}

TEST(Dataset, LeavesLongPromptsOutAndCountsThem) {
  DatasetConfig config = config_for({file_with(
      "long.jsonl", "{\"input\": \"12345\"}\n{\"input\": \"1234\"}\n{\"input\": \"123456\"}\n")});
  config.max_prompt_tokens = 4;
  const Dataset dataset = Dataset::load(config, nullptr, bytes_of);
  EXPECT_EQ(dataset.size(), 1);
  EXPECT_EQ(dataset.num_too_long(), 2);
  EXPECT_EQ(dataset.prompt(0).text, "1234");
  config.max_prompt_tokens = 3;
  EXPECT_THAT(message_of([&] { Dataset::load(config, nullptr, bytes_of); }),
              HasSubstr("all 3 prompts have more than 3 tokens"));
}

TEST(Dataset, CountsRowsThatTheCallerLeavesOutByTheirReasons) {
  DatasetConfig config = config_for({file_with(
      "reasons.jsonl", "{\"input\": \"a\"}\n{\"input\": \"bb\"}\n{\"input\": \"cc\"}\n")});
  config.leave_out = [](const DatasetRow& row) -> std::optional<std::string> {
    return row.prompt.as_string().size() > 1 ? std::optional<std::string>("two_letters")
                                             : std::nullopt;
  };
  const Dataset dataset = Dataset::load(config, nullptr, bytes_of);
  EXPECT_EQ(dataset.size(), 1);
  EXPECT_EQ(words_of_left_out(dataset.left_out()), "2 two_letters");
  config.leave_out = [](const DatasetRow&) { return std::optional<std::string>("all"); };
  EXPECT_THAT(message_of([&] { Dataset::load(config, nullptr, bytes_of); }),
              HasSubstr("reasons.jsonl: no row is left: 3 all"));
}

constexpr std::string_view kQuestion = R"({"role":"user","content":"Q"})";
constexpr std::string_view kSystem = R"({"role":"system","content":"S"})";

std::string answer(std::string_view text) {
  return R"({"role":"assistant","content":")" + std::string(text) + R"("})";
}

/// "PROMPT / CHOSEN / REJECTED" as JSON, or the message that refuses the row.
std::string pair_of(const std::string& line) {
  const RowKeys keys{.input = "prompt", .chosen = "chosen", .rejected = "rejected"};
  std::string pair;
  const std::string problem = message_of([&] {
    const DatasetRow row = read_row(line, keys, "line 1");
    pair = json_text(row.prompt) + " / " + json_text(row.metadata.at("chosen")) + " / " +
           json_text(row.metadata.at("rejected"));
  });
  return pair.empty() ? problem : pair;
}

std::string row_of(const std::string& prompt, const std::string& chosen,
                   const std::string& rejected) {
  const std::string first = prompt.empty() ? "" : "\"prompt\":" + prompt + ",";
  return "{" + first + "\"chosen\":" + chosen + ",\"rejected\":" + rejected + "}";
}

TEST(PreferenceRow, WholeConversationsAreAPromptAndTwoAnswers) {
  const std::string q(kQuestion), s(kSystem);
  const std::string good = "[" + q + "," + answer("good") + "]";
  const std::string bad = "[" + q + "," + answer("bad") + "]";
  const std::string want = "[" + q + "] / [" + answer("good") + "] / [" + answer("bad") + "]";
  EXPECT_EQ(pair_of(row_of("\"Q\"", good, bad)), want);
  EXPECT_EQ(pair_of(row_of("[" + q + "]", good, bad)), want);
  EXPECT_EQ(pair_of(row_of("", good, bad)), want);
  EXPECT_EQ(pair_of(row_of("\"Q\"", "[" + s + "," + q + "," + answer("a") + "]",
                           "[" + s + "," + q + "," + answer("b") + "]")),
            "[" + s + "," + q + "] / [" + answer("a") + "] / [" + answer("b") + "]");
}

TEST(PreferenceRow, WhatBothConversationsBeginWithIsThePrompt) {
  const std::string q(kQuestion), first = q + "," + answer("one") + "," + q + ",";
  EXPECT_EQ(
      pair_of(row_of("\"Q\"", "[" + first + answer("a") + "]", "[" + first + answer("b") + "]")),
      "[" + q + "," + answer("one") + "," + q + "] / [" + answer("a") + "] / [" + answer("b") +
          "]");
}

TEST(PreferenceRow, AnswersThatFollowThePromptStayAsTheyAre) {
  const std::string q(kQuestion);
  EXPECT_EQ(pair_of(row_of("\"Q\"", "\"good\"", "\"bad\"")), R"("Q" / "good" / "bad")");
  const std::string a = "[" + answer("a") + "]", b = "[" + answer("b") + "]";
  EXPECT_EQ(pair_of(row_of("\"Q\"", a, b)), "\"Q\" / " + a + " / " + b);
  const std::string talk = "[" + q + "," + answer("x") + "]";
  EXPECT_EQ(
      pair_of(row_of(talk, "[" + q + "," + answer("a") + "]", "[" + q + "," + answer("b") + "]")),
      talk + " / [" + q + "," + answer("a") + "] / [" + q + "," + answer("b") + "]");
}

TEST(PreferenceRow, ConversationsThatDoNotBeginWithThePromptAreRefused) {
  const std::string q(kQuestion);
  const std::string good = "[" + q + "," + answer("good") + "]";
  EXPECT_THAT(pair_of(row_of("\"other\"", good, good)),
              HasSubstr("should both begin with \"prompt\""));
  EXPECT_THAT(pair_of(row_of("\"Q\"", good, "\"bad\"")), HasSubstr("both should be, or none"));
  EXPECT_THAT(pair_of(row_of("", good, "[" + std::string(kSystem) + "," + answer("b") + "]")),
              HasSubstr("no message in common"));
  EXPECT_THAT(pair_of(row_of("", "\"good\"", "\"bad\"")), HasSubstr("no field \"prompt\""));
}

GOLDEN_TEST(DatasetSlicing, "dataset_slicing.json") {
  const int64_t num_rows = c.at("params").at("num_rows").get_int64();
  std::string content;
  for (int64_t row = 0; row < num_rows; ++row)
    content += "\n{\"input\": \"" + std::to_string(row) + "\"}\n";
  const std::string path = file_with("slices_" + std::to_string(num_rows) + ".jsonl", content) +
                           std::string(c.at("inputs").at("suffix").get_string());
  const SlicedPath sliced = parse_sliced_path(path);
  const json::value& start = c.at("expected").at("start");
  const json::value& end = c.at("expected").at("end");
  EXPECT_EQ(sliced.begin ? json::value(*sliced.begin) : json::value(), start);
  EXPECT_EQ(sliced.end ? json::value(*sliced.end) : json::value(), end);
  const json::array& rows = c.at("expected").at("rows").get_array();
  if (rows.empty()) {
    EXPECT_THAT(message_of([&] { Dataset::load(config_for({path}), nullptr, bytes_of); }),
                HasSubstr("no rows"));
    return;
  }
  const Dataset dataset = Dataset::load(config_for({path}), nullptr, bytes_of);
  ASSERT_EQ(dataset.size(), static_cast<int64_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(dataset.prompt(static_cast<int64_t>(i)).text, std::to_string(rows[i].get_int64()));
  }
}

TEST(Dataset, KeepsTheOrderOfFilesAndRowsWhateverTheNumberOfThreads) {
  std::string content;
  for (int row = 0; row < 3000; ++row)
    content += "{\"input\": \"" + std::to_string(row) + std::string(1000, 'x') + "\"}\r\n";
  DatasetConfig config = config_for({file_with("many.jsonl", "\xef\xbb\xbf" + content) + "@[:2000]",
                                     file_with("few.jsonl", "{\"input\": \"last\"}")});
  config.num_threads = 1;
  const Dataset one = Dataset::load(config, nullptr, bytes_of);
  config.num_threads = 4;
  const Dataset four = Dataset::load(config, nullptr, bytes_of);
  EXPECT_EQ(one.size(), 2001);
  EXPECT_EQ(one.fingerprint(), four.fingerprint());
  EXPECT_EQ(four.prompt(1234).text, "1234" + std::string(1000, 'x'));
  EXPECT_EQ(four.prompt(2000).text, "last");
}

TEST(Dataset, FoldersAndPatternsStandForFilesInTheOrderOfTheirNames) {
  const std::filesystem::path folder =
      std::filesystem::path(file_with("here.jsonl", "")).parent_path() / "shards";
  std::filesystem::create_directories(folder / "more" / ".hidden");
  const auto write = [&](const char* name, int first, int count) {
    std::ofstream file(folder / name);
    for (int row = first; row < first + count; ++row) file << "{\"input\": \"" << row << "\"}\n";
  };
  write("a-1.jsonl", 0, 3);
  write("a-2.jsonl", 3, 2);
  write("more/b.jsonl", 5, 4);
  write("more/.hidden/c.jsonl", 90, 1);
  write("notes.md", 90, 1);
  write("odd[1].jsonl", 9, 1);
  const auto rows_of = [&](const std::string& path) {
    const Dataset dataset = Dataset::load(config_for({path}), nullptr, bytes_of);
    std::string texts;
    for (int64_t row = 0; row < dataset.size(); ++row) texts += dataset.prompt(row).text + " ";
    return texts;
  };
  const std::string root = folder.string();
  EXPECT_EQ(rows_of(root), "0 1 2 3 4 5 6 7 8 9 ");
  EXPECT_EQ(rows_of(root + "/a-*.jsonl"), "0 1 2 3 4 ");
  EXPECT_EQ(rows_of(root + "/{a-2,more/b}.jsonl"), "3 4 5 6 7 8 ");
  EXPECT_EQ(rows_of(root + "/odd[1].jsonl"), "9 ");  // its own name, not a pattern
  // One slice of all rows, end to end.
  EXPECT_EQ(rows_of(root + "/a-*.jsonl@[2:4]"), "2 3 ");
  EXPECT_EQ(rows_of(root + "/a-*.jsonl@[:2]"), "0 1 ");
  EXPECT_EQ(rows_of(root + "/a-*.jsonl@[-2:]"), "3 4 ");
  EXPECT_EQ(rows_of(root + "@[3:-2]"), "3 4 5 6 7 ");
  for (const auto& [path, problem] :
       {std::pair{"/*.csv", "matches no file"}, std::pair{"/more/d.jsonl", "cannot be opened"}})
    EXPECT_THAT(message_of([&, p = path] { rows_of(root + p); }), HasSubstr(problem));
}

TEST(Dataset, NamesTheFlagThatTheFilesCameBy) {
  DatasetConfig config = config_for({"/nowhere/a.jsonl"});
  config.flag = "--eval-prompt-data";
  EXPECT_THAT(message_of([&] { Dataset::load(config, nullptr, bytes_of); }),
              HasSubstr("--eval-prompt-data /nowhere/a.jsonl: cannot be opened"));
  config = config_for({file_with("long.jsonl", "{\"input\": \"longer\"}")});
  config.flag = "--eval-prompt-data";
  config.max_prompt_tokens = 2;
  EXPECT_THAT(message_of([&] { Dataset::load(config, nullptr, bytes_of); }),
              HasSubstr("more than 2 tokens (--eval-max-prompt-len)"));
}

TEST(Dataset, SaysWhatIsWrongWithEachPath) {
  const std::string message = message_of([&] {
    Dataset::load(config_for({"/nowhere/a.jsonl", "rows.parquet", "rows.txt"}), nullptr, bytes_of);
  });
  EXPECT_THAT(message, HasSubstr("--prompt-data /nowhere/a.jsonl: cannot be opened: No such file"));
  EXPECT_THAT(message, HasSubstr("rows.parquet: cannot be opened: No such file"));
  EXPECT_THAT(message, HasSubstr("rows.txt: the name should end in .jsonl, .json or .csv"));
}

TEST(Dataset, KeepsNumbersAsTheFileHasThem) {
  const std::string path = file_with(
      "numbers.jsonl",
      "{\"input\": 12345678901234567890123, \"label\": 98765432109876543210, \"metadata\": "
      "{\"id\": -123456789012345678901234567890, \"x\": 1.0, \"y\": 0.1}}\n");
  DatasetConfig config = config_for({path});
  config.keys.label = "label";
  const Prompt prompt = Dataset::load(config, nullptr, bytes_of).prompt(0);
  EXPECT_EQ(prompt.text, "12345678901234567890123");
  EXPECT_EQ(json_text(prompt.label), "98765432109876543210");
  EXPECT_EQ(json_text(prompt.metadata),
            R"({"id":-123456789012345678901234567890,"x":1.0,"y":0.1})");
}

TEST(Dataset, KnowsWhetherSomeRowHasTheFieldsOfFlags) {
  const std::string path = file_with("fields.jsonl",
                                     "{\"input\": \"a\", \"tool\": []}\n"
                                     "{\"input\": \"b\", \"metadata\": {}}\n");
  DatasetConfig config = config_for({path});
  const Dataset dataset = Dataset::load(config, nullptr, bytes_of);
  EXPECT_TRUE(dataset.has_metadata());
  EXPECT_FALSE(dataset.has_tools());
  EXPECT_EQ(dataset.first_fields(), "the row has input, tool");
  config.keys.tools = "tool";
  EXPECT_TRUE(Dataset::load(config, nullptr, bytes_of).has_tools());
}

}  // namespace
}  // namespace slime::buffer
