#include "tinker/protobuf.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace slime::tinker {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

enum WireType : uint32_t { kWireVarint = 0, kWireFixed64 = 1, kWireBytes = 2, kWireFixed32 = 5 };

constexpr uint32_t kWireBits = 3;
constexpr uint32_t kVarintBits = 7;
constexpr uint32_t kContinues = 0x80;
constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;

}  // namespace

void ProtoField::wrong(std::string_view expected) const {
  throw ConfigError(fmt::format("{}: field {} is not {}", where_, number, expected));
}

uint64_t ProtoField::varint() const {
  if (kind_ != Kind::kVarint) wrong("a whole number");
  return value_;
}

double ProtoField::number64() const {
  if (kind_ != Kind::kFixed64) wrong("a number of 8 bytes");
  return std::bit_cast<double>(value_);
}

std::string_view ProtoField::bytes() const {
  if (kind_ != Kind::kBytes) wrong("text, bytes or a message");
  return bytes_;
}

std::string ProtoField::text(std::size_t limit_bytes) const {
  const std::string_view text = bytes();
  if (text.size() > limit_bytes)
    throw ConfigError(fmt::format("{}: field {} has {} bytes, more than {}", where_, number,
                                  text.size(), limit_bytes));
  return std::string(text);
}

void ProtoField::add_integers(std::vector<int64_t>& numbers) const {
  if (kind_ == Kind::kVarint) {
    numbers.push_back(integer());
    return;
  }
  std::string_view rest = bytes();
  while (!rest.empty()) {
    uint64_t value = 0;
    std::size_t used = 0;
    while (true) {
      if (used == rest.size() || used == 10) wrong("whole numbers");
      const auto byte = static_cast<unsigned char>(rest[used]);
      value |= static_cast<uint64_t>(byte & (kContinues - 1)) << (kVarintBits * used);
      ++used;
      if ((byte & kContinues) == 0) break;
    }
    numbers.push_back(static_cast<int64_t>(value));
    rest.remove_prefix(used);
  }
}

uint64_t ProtoReader::take_varint() {
  uint64_t value = 0;
  for (uint32_t shift = 0; shift < 64; shift += kVarintBits) {
    const std::string_view one = take(1);
    const auto byte = static_cast<unsigned char>(one.front());
    value |= static_cast<uint64_t>(byte & (kContinues - 1)) << shift;
    if ((byte & kContinues) == 0) return value;
  }
  throw ConfigError(fmt::format("{}: a number is longer than 10 bytes", where_));
}

std::string_view ProtoReader::take(uint64_t size) {
  if (size > rest_.size())
    throw ConfigError(fmt::format("{}: ends {} bytes too early", where_, size - rest_.size()));
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t key = take_varint();
  const uint64_t number = key >> kWireBits;
  if (number == 0 || number > kMostNumber)
    throw ConfigError(fmt::format("{}: has a field {}", where_, number));
  ProtoField field;
  field.number = static_cast<uint32_t>(number);
  field.where_ = where_;
  const auto kind = static_cast<uint32_t>(key & ((1U << kWireBits) - 1));
  if (kind == kWireVarint) {
    field.kind_ = ProtoField::Kind::kVarint;
    field.value_ = take_varint();
  } else if (kind == kWireFixed64) {
    field.kind_ = ProtoField::Kind::kFixed64;
    std::memcpy(&field.value_, take(sizeof(uint64_t)).data(), sizeof(uint64_t));
  } else if (kind == kWireBytes) {
    field.kind_ = ProtoField::Kind::kBytes;
    field.bytes_ = take(take_varint());
  } else if (kind == kWireFixed32) {
    field.kind_ = ProtoField::Kind::kFixed32;
    take(sizeof(uint32_t));
  } else {
    throw ConfigError(fmt::format("{}: field {} has wire type {}", where_, number, kind));
  }
  return field;
}

void ProtoWriter::plain_varint(uint64_t value) {
  while (value >= kContinues) {
    text_ += static_cast<char>(static_cast<unsigned char>(value | kContinues));
    value >>= kVarintBits;
  }
  text_ += static_cast<char>(value);
}

ProtoEntry read_entry(std::string_view bytes, std::string_view where, std::size_t limit_bytes) {
  enum MapField : uint32_t { kKey = 1, kValue = 2 };
  ProtoEntry entry;
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == kKey) entry.key = field->text(limit_bytes);
    if (field->number == kValue) entry.value = *field;
  }
  return entry;
}

void ProtoWriter::varint(uint32_t number, uint64_t value) {
  if (value == 0) return;
  key(number, kWireVarint);
  plain_varint(value);
}

void ProtoWriter::number64(uint32_t number, double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if (bits == 0) return;
  key(number, kWireFixed64);
  const std::size_t size = text_.size();
  text_.resize(size + sizeof bits);
  std::memcpy(text_.data() + size, &bits, sizeof bits);
}

void ProtoWriter::bytes(uint32_t number, std::string_view value) {
  if (!value.empty()) element(number, value);
}

void ProtoWriter::element(uint32_t number, std::string_view value) {
  key(number, kWireBytes);
  plain_varint(value.size());
  text_ += value;
}

}  // namespace slime::tinker
