#pragma once

/// Numbers, texts and lists of them as the bytes of a frame: numbers as they lie in memory
/// (little-endian), lists with their lengths before them. The reader takes nothing on trust: every
/// length is compared with what is left before anything is allocated.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "net/frame_channel.h"

namespace slime::net {

/// A type whose every value is one pattern of bytes, and the floats.
template <typename T>
concept Plain = std::is_arithmetic_v<T> ||
    (std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>);

class BinaryWriter final {
 public:
  template <Plain T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  template <Plain T>
  void put(const std::vector<T>& list) {
    put(static_cast<uint64_t>(list.size()));
    put_column(list);
  }
  /// Without its length, which the reader knows.
  template <Plain T>
  void put_column(const std::vector<T>& column) {
    bytes_.append(reinterpret_cast<const char*>(column.data()), column.size() * sizeof(T));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Throws FrameError where the bytes do not hold what is asked for.
class BinaryReader final {
 public:
  explicit BinaryReader(std::string_view bytes) : rest_(bytes) {}

  template <Plain T>
  void get(T& value) {
    std::memcpy(&value, next(sizeof value), sizeof value);
  }
  void get(bool& value) { value = below(2) == 1; }
  void get(std::string& text) {
    const std::size_t size = count(1);
    text.assign(next(size), size);
  }
  template <Plain T>
  void get(std::vector<T>& list) {
    get_column(list, count(sizeof(T)));
  }
  /// So many numbers follow.
  template <Plain T>
  void get_column(std::vector<T>& column, uint64_t count) {
    if (count > rest_.size() / sizeof(T)) throw FrameError("a frame ends inside a column");
    column.resize(count);
    if (count > 0) std::memcpy(column.data(), next(count * sizeof(T)), count * sizeof(T));
  }
  /// A byte that is less than `limit`: a bool, an enumerator.
  uint8_t below(uint8_t limit) {
    uint8_t byte = 0;
    get(byte);
    if (byte >= limit) throw FrameError("a frame has a byte that means nothing there");
    return byte;
  }
  /// How many things follow; each takes `bytes` at least.
  std::size_t count(std::size_t bytes) {
    uint64_t number = 0;
    get(number);
    if (number > rest_.size() / bytes)
      throw FrameError("a frame names more things than its bytes can be");
    return number;
  }
  std::string_view rest() const { return rest_; }
  /// A frame ends where its content does.
  void end() const {
    if (!rest_.empty()) throw FrameError("bytes follow the end of a frame's content");
  }

 private:
  const char* next(std::size_t size) {
    if (size > rest_.size()) throw FrameError("a frame ends before its content does");
    const char* here = rest_.data();
    rest_.remove_prefix(size);
    return here;
  }

  std::string_view rest_;
};

}  // namespace slime::net
