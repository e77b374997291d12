#include "tinker/protobuf.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace slime::tinker {
namespace {

using namespace std::string_view_literals;

std::size_t count_fields(std::string_view bytes) {
  ProtoReader reader(bytes, "body");
  std::size_t count = 0;
  while (reader.next()) ++count;
  return count;
}

TEST(Protobuf, ReadsWhatItWrote) {
  ProtoWriter writer;
  writer.varint(1, 300);
  writer.number64(2, -0.5);
  writer.bytes(3, "abc");
  writer.element(4, "");
  writer.varint(5, std::numeric_limits<uint64_t>::max());
  ProtoReader reader(writer.text(), "body");
  EXPECT_EQ(reader.next()->varint(), 300U);
  EXPECT_EQ(reader.next()->number64(), -0.5);
  EXPECT_EQ(reader.next()->text(3), "abc");
  const auto empty = reader.next();
  EXPECT_EQ(empty->number, 4U);
  EXPECT_EQ(empty->bytes(), "");
  EXPECT_EQ(reader.next()->integer(), -1);
  EXPECT_FALSE(reader.next());
}

TEST(Protobuf, BytesAreThoseOfTheSpecification) {
  ProtoWriter writer;
  writer.varint(1, 150);
  writer.bytes(2, "testing");
  EXPECT_EQ(writer.text(), "\x08\x96\x01\x12\x07testing"sv);
}

TEST(Protobuf, DefaultsAreLeftOut) {
  ProtoWriter writer;
  writer.varint(1, 0);
  writer.number64(2, 0);
  writer.bytes(3, "");
  EXPECT_EQ(writer.text(), "");
}

TEST(Protobuf, FieldsOfFourBytesAreThereToBeSkipped) {
  EXPECT_EQ(count_fields("\x0d\x01\x02\x03\x04\x10\x05"sv), 2U);
}

TEST(Protobuf, PackedAndSingleNumbersAreTheSame) {
  std::vector<int64_t> numbers;
  ProtoReader packed("\x22\x03\x06\xac\x02\x20\x07"sv, "shape");
  while (const auto field = packed.next()) field->add_integers(numbers);
  EXPECT_EQ(numbers, (std::vector<int64_t>{6, 300, 7}));
}

TEST(Protobuf, DamagedBytesAreRefused) {
  EXPECT_THROW(count_fields("\x12\x07tes"sv), ConfigError);  // shorter than it says
  EXPECT_THROW(count_fields("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv), ConfigError);
  EXPECT_THROW(count_fields("\x08"sv), ConfigError);      // no number
  EXPECT_THROW(count_fields("\x08\xff"sv), ConfigError);  // half a number
  EXPECT_THROW(count_fields("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv), ConfigError);
  EXPECT_THROW(count_fields("\x09\x01\x02"sv), ConfigError);  // of 8 bytes
  EXPECT_THROW(count_fields("\x0b"sv), ConfigError);          // a group
  EXPECT_THROW(count_fields("\x00\x01"sv), ConfigError);      // field 0
}

TEST(Protobuf, AnotherWireTypeIsRefusedWithTheField) {
  ProtoReader reader("\x08\x01"sv, "data[3]");
  const auto field = reader.next();
  try {
    field->bytes();
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "data[3]: field 1 is not text, bytes or a message");
  }
  EXPECT_THROW(field->number64(), ConfigError);
  ProtoReader text("\x12\x01x"sv, "data[3]");
  EXPECT_THROW(text.next()->varint(), ConfigError);
}

}  // namespace
}  // namespace slime::tinker
