#include "tinker/training_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "tinker/protobuf.h"

namespace slime::tinker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 100;

template <typename T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string message(const std::function<void(ProtoWriter&)>& fill) {
  ProtoWriter writer;
  fill(writer);
  return writer.text();
}

std::string chunk(const std::vector<int32_t>& tokens) {
  return message([&](ProtoWriter& out) {
    out.element(1, message([&](ProtoWriter& text) { text.bytes(1, bytes(tokens)); }));
  });
}

std::string tensor(const std::string& data, uint64_t dtype, const std::string& shape) {
  return message([&](ProtoWriter& out) {
    out.bytes(1, data);
    out.varint(3, dtype);
    out.bytes(4, shape);
  });
}

std::string entry(const std::string& name, const std::string& value) {
  return message([&](ProtoWriter& out) {
    out.bytes(1, name);
    out.element(2, value);
  });
}

/// Tokens 5 6 7 in two chunks, targets in int64, weights in bfloat16.
std::string datum() {
  return message([](ProtoWriter& out) {
    out.element(1, chunk({5, 6}));
    out.element(1, chunk({7}));
    out.element(2, entry("target_tokens", tensor(bytes<int64_t>({6, 7, 8}), 2, "\x03")));
    out.element(2, entry("weights", tensor(bytes<uint16_t>({0, 0x3F80, 0x3F00}), 4, "\x03")));
  });
}

std::string request(const std::string& one) {
  return message([&](ProtoWriter& out) {
    out.bytes(1, "session-1:train:0");
    out.varint(2, 7);
    out.element(3, one);
    out.bytes(4, "ppo");
    out.element(5, message([](ProtoWriter& of) {
                  of.bytes(1, "clip_low_threshold");
                  of.number64(2, 0.5);
                }));
    out.varint(6, 1);
    out.element(7, entry("clip_low_threshold",
                         message([](ProtoWriter& value) { value.number64(1, 0.9); })));
    out.bytes(99, "of a later version");
  });
}

std::string problem(const std::string& body) {
  try {
    (void)read_protobuf_body(body, kVocabulary);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingBody, AMessageHasItsHeadAndItsData) {
  const TrainingHead head = read_protobuf_head(request(datum()));
  EXPECT_EQ(head.model_id, "session-1:train:0");
  EXPECT_EQ(head.seq_id, 7);
  EXPECT_TRUE(head.is_forward_only);
  const TrainingBody body = read_protobuf_body(request(datum()), kVocabulary);
  EXPECT_EQ(body.loss_fn, "ppo");
  EXPECT_EQ(body.loss_fn_config.at("clip_low_threshold"), 0.9) << "the newer map wins";
  ASSERT_EQ(body.data.size(), 1U);
  EXPECT_EQ(body.data[0].tokens, (std::vector<TokenId>{5, 6, 7}));
  const InputColumn& targets = body.data[0].inputs.at("target_tokens");
  EXPECT_EQ(std::get<std::vector<int64_t>>(targets.values), (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ(targets.shape, std::vector<int64_t>{3});
  const InputColumn& weights = body.data[0].inputs.at("weights");
  EXPECT_EQ(std::get<std::vector<float>>(weights.values), (std::vector<float>{0, 1, 0.5F}));
}

TEST(TrainingBody, JsonSaysTheSame) {
  const json::value plain = parse_json(R"({"loss_fn": "ppo", "data": [{
      "model_input": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}, {"tokens": [7]}]},
      "loss_fn_inputs": {"target_tokens": {"data": [6, 7, 8], "dtype": "int64", "shape": [3]},
                         "weights": {"data": [0, 1, 0.5], "dtype": "float32", "shape": [3]}}}]})",
                                       "test");
  const TrainingBody body = read_json_body(FieldReader(plain.as_object(), ""), kVocabulary);
  const TrainingBody other = read_protobuf_body(request(datum()), kVocabulary);
  EXPECT_EQ(body.loss_fn, other.loss_fn);
  ASSERT_EQ(body.data.size(), 1U);
  EXPECT_EQ(body.data[0].tokens, other.data[0].tokens);
  for (const char* name : {"target_tokens", "weights"})
    EXPECT_EQ(body.data[0].inputs.at(name).values, other.data[0].inputs.at(name).values) << name;
}

TEST(TrainingBody, WhatIsWrongIsNamedByDatumAndField) {
  EXPECT_THAT(problem(request(message([](ProtoWriter& out) {
                out.element(1, chunk({5, 100}));
              }))),
              HasSubstr("data[0].model_input: 100 is no token; the vocabulary has 100"));
  const auto column = [](const std::string& value) {
    return request(message([&](ProtoWriter& out) { out.element(2, entry("weights", value)); }));
  };
  EXPECT_THAT(problem(column(tensor("abc", 1, ""))),
              HasSubstr("data[0].loss_fn_inputs.weights: 3 bytes are no numbers of 4"));
  EXPECT_THAT(problem(column(tensor("abcd", 9, ""))), HasSubstr("weights: has no type of numbers"));
  EXPECT_THAT(problem(column(tensor("abcd", 1, "\1\1\1\1\1\1\1\1\1"))), HasSubstr("dimensions"));
  EXPECT_THAT(problem(column(message([](ProtoWriter& out) { out.element(2, "x"); }))),
              HasSubstr("is sparse; columns are dense here"));
  EXPECT_THAT(problem(request(message([](ProtoWriter& out) {
                out.element(1, message([](ProtoWriter& image) { image.element(2, "png"); }));
              }))),
              HasSubstr("data[0].model_input: has an image"));
}

TEST(TrainingBody, HasData) {
  EXPECT_THAT(problem(message([](ProtoWriter& out) { out.bytes(4, "ppo"); })),
              HasSubstr("data: there is none"));
  EXPECT_THAT(problem(message([](ProtoWriter& out) {
                for (std::size_t i = 0; i <= kMostData; ++i) out.element(3, "");
              })),
              HasSubstr("at most 65536"));
}

TEST(TrainingBody, NoCutOfAMessageIsReadBeyondItsEnd) {
  const std::string whole = request(datum());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    try {
      (void)read_protobuf_head(cut);
      (void)read_protobuf_body(cut, kVocabulary);
    } catch (const ConfigError&) {
    }
  }
}

TEST(TrainingBody, ANumberOfARequestIsNotNegative) {
  const std::string body = message([](ProtoWriter& out) { out.varint(2, ~uint64_t{0}); });
  EXPECT_THROW(read_protobuf_head(body), ConfigError);
}

}  // namespace
}  // namespace slime::tinker
