#include "tinker/answers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "tinker/protobuf.h"

namespace slime::tinker {
namespace {

PassAnswer pass() {
  return {.log_probs = {{-0.5F, -1.5F}, {-2}},
          .elementwise_loss = {{0.5F, 0}, {2}},
          .metrics = {{"loss:sum", 2.5}, {"tokens:sum", 0}}};
}

std::string_view only(std::string_view message, uint32_t number) {
  std::string_view found;
  ProtoReader reader(message, "answer");
  while (const auto field = reader.next())
    if (field->number == number) found = field->bytes();
  return found;
}

TEST(Answers, APassComesBackFromItsMessage) {
  const PassAnswer read = read_pass_answer(*protobuf_of(pass()));
  EXPECT_EQ(read.log_probs, pass().log_probs);
  EXPECT_EQ(read.elementwise_loss, pass().elementwise_loss);
  EXPECT_EQ(read.metrics, pass().metrics);
}

TEST(Answers, OffsetsBeyondTheNumbersAreNotFollowed) {
  const int64_t ends[] = {0, 4, 4096};
  ProtoWriter tensor, entry, record, message;
  tensor.bytes(1, "abcd");
  tensor.bytes(2, {reinterpret_cast<const char*>(ends), sizeof ends});
  entry.bytes(1, "logprobs");
  entry.element(2, tensor.text());
  record.element(2, entry.text());
  message.element(2, record.text());
  EXPECT_THROW(read_pass_answer(message.text()), ConfigError);
}

TEST(Answers, TheKeyOfAnEntryMayComeBehindItsValue) {
  const int64_t ends[] = {0, 4};
  const float number = -0.5F;
  ProtoWriter tensor, entry, record, metric, message;
  tensor.bytes(1, {reinterpret_cast<const char*>(&number), sizeof number});
  tensor.bytes(2, {reinterpret_cast<const char*>(ends), sizeof ends});
  entry.element(2, tensor.text());
  entry.bytes(1, "logprobs");
  record.element(2, entry.text());
  metric.number64(2, 2.5);
  metric.bytes(1, "loss:sum");
  message.element(2, record.text());
  message.element(3, metric.text());
  const PassAnswer read = read_pass_answer(message.text());
  EXPECT_EQ(read.log_probs, (std::vector<std::vector<float>>{{-0.5F}}));
  EXPECT_TRUE(read.elementwise_loss.empty());
  EXPECT_EQ(read.metrics, (std::map<std::string, double>{{"loss:sum", 2.5}}));
}

TEST(Answers, APassInJsonHasATensorForEachDatum) {
  const json::object made = json_of(pass());
  const json::array& outputs = made.at("loss_fn_outputs").as_array();
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].at("logprobs").at("data"), (json::array{-0.5, -1.5}));
  EXPECT_EQ(outputs[1].at("elementwise_loss").at("shape"), json::array{1});
  EXPECT_EQ(made.at("metrics").at("loss:sum"), 2.5);
}

SampleAnswer samples() {
  SampleAnswer answer;
  answer.sequences.push_back(
      {.tokens = {7, 8}, .log_probs = {-1, -2}, .is_stopped = true, .text = {}, .top = {}});
  answer.prompt_log_probs = {std::nullopt, -3.0F};
  answer.prompt_top = {{}, {{-0.5F, 9}}};
  answer.num_prompt_top = 2;
  answer.num_cached_tokens = 1;
  return answer;
}

TEST(Answers, TheFirstTokenOfAPromptHasNoLogProb) {
  const std::string message = *protobuf_of(samples());
  float numbers[2];
  const std::string_view bytes = only(message, 2);
  ASSERT_EQ(bytes.size(), sizeof numbers);
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  EXPECT_TRUE(std::isnan(numbers[0]));
  EXPECT_EQ(numbers[1], -3);
  const json::value plain = json_of(samples()).at("prompt_logprobs");
  EXPECT_EQ(plain, (json::array{nullptr, -3.0}));
}

TEST(Answers, CellsWithoutATokenHoldWhatClientsLeaveOut) {
  const std::string message = *protobuf_of(samples());
  const std::string_view top = only(message, 3);
  int32_t tokens[4];
  float log_probs[4];
  ASSERT_EQ(only(top, 1).size(), sizeof tokens);
  ASSERT_EQ(only(top, 2).size(), sizeof log_probs);
  std::memcpy(tokens, only(top, 1).data(), sizeof tokens);
  std::memcpy(log_probs, only(top, 2).data(), sizeof log_probs);
  EXPECT_EQ(std::vector(tokens, tokens + 4), (std::vector<int32_t>{0, 0, 9, 0}));
  EXPECT_EQ(std::vector(log_probs, log_probs + 4),
            (std::vector<float>{-99999, -99999, -0.5F, -99999}));
}

TEST(Answers, OnlyPassesAndSamplesHaveMessages) {
  EXPECT_FALSE(protobuf_of(json::object{{"type", "optim_step"}}).has_value());
}

}  // namespace
}  // namespace slime::tinker
