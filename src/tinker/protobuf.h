#pragma once

/// Protocol Buffers on the wire: the fields of a message, read from bytes that anybody may have sent, and
/// written.
///
///   ProtoReader reader(bytes, "data[0]");
///   while (const auto field = reader.next()) {
///     if (field->number == 1) tokens = field->bytes();
///   }
///
/// Fields come in any order and may be repeated; whoever reads skips the numbers that it does not know.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slime::tinker {

/// One field. The accessors throw ConfigError for another wire type than theirs.
class ProtoField final {
 public:
  uint32_t number = 0;

  uint64_t varint() const;
  int64_t integer() const { return static_cast<int64_t>(varint()); }
  bool boolean() const { return varint() != 0; }
  double number64() const;
  std::string_view bytes() const;
  /// Bytes that are UTF-8 or not: a name, of at most so many.
  std::string text(std::size_t limit_bytes) const;
  /// The numbers of a repeated field, whose parts are packed or single.
  void add_integers(std::vector<int64_t>& numbers) const;

 private:
  friend class ProtoReader;
  enum class Kind : uint8_t { kVarint, kFixed64, kBytes, kFixed32 };
  [[noreturn]] void wrong(std::string_view expected) const;

  Kind kind_ = Kind::kVarint;
  uint64_t value_ = 0;
  std::string_view bytes_;
  std::string_view where_;
};

class ProtoReader final {
 public:
  /// `bytes` and `where`, which stands before messages, outlive the reader and its fields.
  ProtoReader(std::string_view bytes, std::string_view where) : rest_(bytes), where_(where) {}

  /// The next field; nothing at the end. Throws ConfigError for bytes that are no message.
  std::optional<ProtoField> next();

 private:
  uint64_t take_varint();
  std::string_view take(uint64_t size);

  std::string_view rest_;
  std::string_view where_;
};

/// An entry of a map, whose key and value come in any order.
struct ProtoEntry {
  std::string key;
  std::optional<ProtoField> value;
};
/// Throws ConfigError, also for a key of more than `limit_bytes`.
ProtoEntry read_entry(std::string_view bytes, std::string_view where, std::size_t limit_bytes);

/// Fields whose value is the default are left out, as proto3 has it.
class ProtoWriter final {
 public:
  void varint(uint32_t number, uint64_t value);
  void number64(uint32_t number, double value);
  void bytes(uint32_t number, std::string_view value);
  /// The same also where it is empty: an element of a list, or a message that is there.
  void element(uint32_t number, std::string_view value);

  const std::string& text() const { return text_; }

 private:
  void key(uint32_t number, uint32_t kind) { plain_varint((uint64_t{number} << 3) | kind); }
  void plain_varint(uint64_t value);

  std::string text_;
};

}  // namespace slime::tinker
