#include "buffer/data_source.h"

#include <gtest/gtest.h>

#include <fstream>

#include "buffer/python_random.h"
#include "core/error.h"
#include "core/golden_test.h"

namespace slime::buffer {
namespace {

/// A data set of `num_rows` prompts "0", "1", ...
Dataset numbered_rows(int64_t num_rows) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) /
                                     ("data_source_" + std::to_string(num_rows) + ".jsonl");
  std::ofstream file(path);
  for (int64_t row = 0; row < num_rows; ++row) file << R"({"input": ")" << row << "\"}\n";
  file.close();
  DatasetConfig config;
  config.paths = {path.string()};
  return Dataset::load(config, nullptr, [](std::string_view text) {
    return std::vector<TokenId>(text.begin(), text.end());
  });
}

DataSourceConfig config_of(const json::object& params) {
  return {.samples_per_prompt = params.at("n_samples_per_prompt").get_int64(),
          .shuffle = params.at("shuffle").get_bool(),
          .seed = params.at("seed").get_int64()};
}

json::array to_json(const std::vector<Group>& groups) {
  json::array array;
  for (const Group& group : groups) {
    json::array indices;
    for (const Sample& sample : group.samples) indices.push_back(sample.ordinal);
    array.push_back(json::object{{"prompt", std::stoll(group.samples.front().prompt)},
                                 {"group_index", group.ordinal},
                                 {"indices", std::move(indices)}});
  }
  return array;
}

/// Gives out prompts "p0", "p1", ... and what it was given back first.
struct CountingSupply final : PromptSupply {
  std::vector<Group> take(int64_t count) override {
    std::vector<Group> groups;
    for (; count > 0 && !back.empty(); --count) {
      groups.push_back(std::move(back.front()));
      back.erase(back.begin());
    }
    for (; count > 0 && next < last; --count, ++next) {
      Group group{.ordinal = kNewGroup, .samples = std::vector<Sample>(2)};
      for (std::size_t i = 0; i < 2; ++i) {
        group.samples[i].prompt = "p" + std::to_string(next);
        group.samples[i].index_in_group = static_cast<int64_t>(i);
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }
  void give_back(const std::vector<Group>& groups) override {
    back.insert(back.end(), groups.begin(), groups.end());
  }
  int64_t next = 0;
  int64_t last = 100;
  std::vector<Group> back;
};

TEST(DataSource, ASuppliesGroupsGetTheirNumbersHere) {
  CountingSupply supply;
  DataSource source(supply, {.samples_per_prompt = 2});
  std::vector<Group> groups = source.take(3);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[2].ordinal, 2);
  EXPECT_EQ(groups[2].samples[1].ordinal, 5);
  EXPECT_EQ(groups[2].samples[1].group, 2);
  // What comes back keeps its number, and waits until the supply gives it out.
  source.add({groups[1]});
  EXPECT_EQ(source.num_waiting(), 1);
  groups = source.take(2);
  EXPECT_EQ(source.num_waiting(), 0);
  EXPECT_EQ(groups[0].ordinal, 1);
  EXPECT_EQ(groups[1].ordinal, 3);
  EXPECT_EQ(groups[1].samples[0].ordinal, 6);
  supply.last = supply.next;
  EXPECT_TRUE(source.take(2).empty()) << "there are no more";
}

TEST(DataSource, ASuppliesGroupsThatAreNotFinalWaitAfterARestart) {
  CountingSupply supply;
  DataSource source(supply, {.samples_per_prompt = 2});
  std::vector<Group> groups = source.take(4);
  groups[1].samples[0].response = "half";
  source.add({groups[1]});
  const json::object state = source.save({1, 3});  // 3 is under way, 0 and 2 are final
  CountingSupply other;
  DataSource again(other, {.samples_per_prompt = 2});
  EXPECT_TRUE(again.restore(state, "state").empty());
  ASSERT_EQ(again.num_waiting(), 2);
  EXPECT_EQ(again.waiting()[0].samples[0].response, "half");
  EXPECT_EQ(again.waiting()[1].samples[0].prompt, "p3");
  EXPECT_EQ(again.next_group(), 4);
}

TEST(DataSource, AGroupThatSomebodyElseMadeIsNumbered) {
  DataSource source(nullptr, {.samples_per_prompt = 3});
  source.take(1);
  Group group{.ordinal = kNewGroup, .samples = std::vector<Sample>(2)};
  group.samples[1].index_in_group = 2;
  source.adopt(group);
  EXPECT_EQ(group.ordinal, 1);
  EXPECT_EQ(group.samples[0].ordinal, 3);
  EXPECT_EQ(group.samples[1].ordinal, 5);
  EXPECT_EQ(source.take(1).front().samples[0].ordinal, 6);
}

json::object state_of(const DataSource& source) {
  return {{"sample_offset", source.offset()},
          {"epoch_id", source.epoch()},
          {"sample_group_index", source.next_group()},
          {"sample_index", source.next_sample()},
          {"buffer", source.num_waiting()}};
}

GOLDEN_TEST(DataSource, "data_source.json") {
  const json::object& params = c.at("params").get_object();
  const Dataset dataset = numbered_rows(params.at("dataset_size").get_int64());
  auto source = std::make_unique<DataSource>(&dataset, config_of(params));
  const json::array& trace = c.at("expected").at("trace").get_array();
  const json::array& ops = c.at("inputs").at("ops").get_array();
  ASSERT_EQ(trace.size(), ops.size());
  std::vector<Group> last;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const json::string& op = ops[i].at(0).get_string();
    const int64_t count = ops[i].at(1).get_int64();
    if (op == "get") {
      last = source->take(count);
      EXPECT_EQ(to_json(last), trace[i].at("groups").get_array());
      EXPECT_EQ(state_of(*source), trace[i].at("state").get_object());
    } else if (op == "requeue") {
      source->add({last.begin(), last.begin() + count});
    } else {
      const json::object state = source->save({});
      source = std::make_unique<DataSource>(&dataset, config_of(params));
      source->restore(parse_json(json_text(state), "state").get_object(), "state");
    }
  }
}

GOLDEN_TEST(DatasetShuffle, "dataset_shuffle.json") {
  json::array order;
  for (const int64_t row :
       epoch_order(c.at("inputs").at("num_samples").get_int64(),
                   c.at("params").at("seed").get_int64(), c.at("params").at("epoch").get_int64())) {
    order.push_back(row);
  }
  EXPECT_EQ(order, c.at("expected").at("permutation").get_array());
}

TEST(DataSource, GivesPendingSamplesOfOnePrompt) {
  const Dataset dataset = numbered_rows(12);
  DataSource source(&dataset, {.samples_per_prompt = 2});
  const Group group = source.take(12).back();
  EXPECT_EQ(group.ordinal, 11);
  ASSERT_EQ(group.samples.size(), 2U);
  const Sample& sample = group.samples[1];
  EXPECT_EQ(sample.ordinal, 23);
  EXPECT_EQ(sample.group, 11);
  EXPECT_EQ(sample.index_in_group, 1);
  EXPECT_EQ(sample.status, Status::kPending);
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{'1', '1'}));
  EXPECT_EQ(sample.prompt_length, 2);
}

TEST(DataSource, AfterARestartWaitingGroupsComeAsTheyWereAndGroupsInFlightAnew) {
  const Dataset dataset = numbered_rows(5);
  const DataSourceConfig config{.samples_per_prompt = 2, .shuffle = true, .seed = 42};
  DataSource source(&dataset, config);
  std::vector<Group> groups = source.take(4);  // rows 3 1 2 4
  groups[2].samples[0].tokens.push_back(99);   // half-way through its response
  source.add({groups[2]});
  const json::object state = source.save({1, 2});  // 0 and 3 are trained

  DataSource again(&dataset, config);
  EXPECT_TRUE(again.restore(parse_json(json_text(state), "state").get_object(), "state").empty());
  EXPECT_EQ(again.num_waiting(), 2);
  const std::vector<Group> next = again.take(3);
  EXPECT_EQ(json_text(to_json(next)), R"([{"prompt":1,"group_index":1,"indices":[2,3]},)"
                                      R"({"prompt":2,"group_index":2,"indices":[4,5]},)"
                                      R"({"prompt":0,"group_index":4,"indices":[8,9]}])");
  EXPECT_EQ(next[0].samples[0].tokens, (std::vector<TokenId>{'1'}));
  EXPECT_EQ(next[1].samples[0].tokens, (std::vector<TokenId>{'2', 99}));

  // A second restart while they are in flight again loses none.
  DataSource third(&dataset, config);
  third.restore(again.save({1, 2, 4}), "state");
  EXPECT_EQ(third.num_waiting(), 3);
}

TEST(DataSource, SaysWhatChangedSinceTheCheckpoint) {
  const Dataset five = numbered_rows(5);
  const Dataset six = numbered_rows(6);
  DataSource source(&five, {});
  source.take(2);
  const json::object state = source.save({});
  EXPECT_EQ(DataSource(&six, {}).restore(state, "state").size(), 1U);
  EXPECT_EQ(DataSource(&five, {.seed = 7}).restore(state, "state").size(), 1U);
  EXPECT_THROW(DataSource(&five, {}).restore({{"version", 2}}, "state"), ConfigError);

  source.add(source.take(1));
  EXPECT_THROW(DataSource(&five, {.samples_per_prompt = 4}).restore(source.save({}), "state"),
               ConfigError);
}

TEST(DataSource, MessagesThatNoTemplateRendersStayAListForFunctionsOfTheUsers) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "data_source_messages.jsonl";
  const std::string messages = R"([{"role":"user","content":"hi"}])";
  std::ofstream(path) << R"({"input": )" << messages << "}\n"
                      << R"({"input": "[{\"a\": 1}]"})"
                      << "\n";
  DatasetConfig config;
  config.paths = {path.string()};
  const auto letters = [](std::string_view text) {
    return std::vector<TokenId>(text.begin(), text.end());
  };
  const Dataset dataset = Dataset::load(config, nullptr, letters);
  const std::vector<Group> groups = DataSource(&dataset, {}).take(2);
  EXPECT_EQ(json_text(groups[0].samples[0].user_fields), "{\"prompt\":" + messages + "}");
  EXPECT_EQ(groups[0].samples[0].prompt, messages);
  EXPECT_TRUE(groups[1].samples[0].user_fields.empty());  // a text that is JSON stays a text
  EXPECT_EQ(groups[1].samples[0].prompt, R"([{"a": 1}])");

  config.apply_chat_template = true;
  const RenderFn render = [](const json::array&, const json::array&) { return "rendered"; };
  const Dataset rendered = Dataset::load(config, render, letters);
  EXPECT_TRUE(DataSource(&rendered, {}).take(1)[0].samples[0].user_fields.empty());
}

TEST(DataSource, WithoutADataSetGivesEmptySamples) {
  DataSource source(nullptr, {.samples_per_prompt = 3});
  const std::vector<Group> groups = source.take(2);
  EXPECT_EQ(groups[1].samples[2].ordinal, 5);
  EXPECT_TRUE(groups[1].samples[2].tokens.empty());
}

std::vector<int64_t> ordinals(const std::vector<Group>& groups) {
  std::vector<int64_t> all;
  for (const Group& group : groups) all.push_back(group.ordinal);
  return all;
}

TEST(DataSource, AChoiceSaysWhichOfThoseThatWaitComeFirst) {
  const Dataset dataset = numbered_rows(9);
  DataSource source(&dataset, {.samples_per_prompt = 2});
  source.add(source.take(4));
  std::vector<Group> left_out;
  const auto choose = [](const std::deque<Group>& waiting, int64_t count) {
    EXPECT_EQ(waiting.size(), 4u);
    EXPECT_EQ(count, 3);
    return WaitingChoice{.taken = {3, 1}, .left = {2}};
  };
  EXPECT_EQ(ordinals(source.take(3, choose, left_out)), (std::vector<int64_t>{3, 1, 4}));
  EXPECT_EQ(ordinals(left_out), (std::vector<int64_t>{0}));
  EXPECT_EQ(source.num_waiting(), 1);
  EXPECT_EQ(source.waiting().front().ordinal, 2);
}

TEST(DataSource, NobodyIsAskedWhereNothingWaitsOrNothingIsWanted) {
  const Dataset dataset = numbered_rows(9);
  DataSource source(&dataset, {.samples_per_prompt = 2});
  std::vector<Group> left_out;
  const auto choose = [](const std::deque<Group>&, int64_t) -> WaitingChoice {
    throw BugError("it was asked");
  };
  EXPECT_EQ(ordinals(source.take(2, choose, left_out)), (std::vector<int64_t>{0, 1}));
  source.add(source.take(1));
  EXPECT_TRUE(source.take(0, choose, left_out).empty());
}

TEST(DataSource, AChoiceOfWhatIsNotThereIsRefusedAndLosesNothing) {
  const Dataset dataset = numbered_rows(9);
  DataSource source(&dataset, {.samples_per_prompt = 2});
  source.add(source.take(3));
  for (const WaitingChoice& choice :
       {WaitingChoice{.taken = {3}, .left = {}}, WaitingChoice{.taken = {0}, .left = {0, 1}},
        WaitingChoice{.taken = {0, 0}, .left = {}},
        WaitingChoice{.taken = {0, 1, 2}, .left = {}}}) {
    std::vector<Group> left_out;
    EXPECT_THROW(source.take(
                     2, [&choice](const std::deque<Group>&, int64_t) { return choice; }, left_out),
                 ConfigError);
    EXPECT_EQ(source.num_waiting(), 3);
  }
}

/// Gives the group out once, and again when it came back.
struct ReplaySupply final : PromptSupply {
  std::vector<Group> waiting;

  std::vector<Group> take(int64_t count) override {
    std::vector<Group> groups;
    while (!waiting.empty() && static_cast<int64_t>(groups.size()) < count) {
      groups.push_back(std::move(waiting.back()));
      waiting.pop_back();
    }
    return groups;
  }
  void give_back(const std::vector<Group>& groups) override {
    waiting.insert(waiting.end(), groups.begin(), groups.end());
  }
};

TEST(DataSource, KnowsWhichGroupsASupplyGaveOutFinishedAndGivesThemAgainWithTheirTokens) {
  ReplaySupply supply;
  Sample finished;
  finished.tokens = {1, 2, 3};
  finished.prompt_length = 1;
  finished.status = Status::kCompleted;
  supply.waiting = {{.ordinal = kNewGroup, .samples = {finished}},
                    {.ordinal = kNewGroup, .samples = std::vector<Sample>(1)}};
  DataSource source(supply, {.samples_per_prompt = 1});
  EXPECT_EQ(source.take(2).size(), 2U);
  EXPECT_FALSE(source.gave_finished(0));
  EXPECT_TRUE(source.gave_finished(1));
  // A checkpoint while both are under way.
  const json::object state = source.save({0, 1});
  ReplaySupply later;
  DataSource again(later, {.samples_per_prompt = 1});
  again.restore(state, "state");
  supply.give_back({again.waiting().begin(), again.waiting().end()});
  later.waiting = supply.waiting;
  for (const Group& group : again.take(2))
    EXPECT_EQ(group.samples[0].tokens.size(), group.ordinal == 1 ? 3U : 0U);
  EXPECT_TRUE(again.gave_finished(1));
}

}  // namespace
}  // namespace slime::buffer
