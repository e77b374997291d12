#include "plugin/payload.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

using net::FrameError;

constexpr uint32_t kMostColumns = uint32_t{1} << 20;

struct ColumnHead {
  uint32_t kind = 0;
  uint32_t zero = 0;
  uint64_t count = 0;
};
static_assert(sizeof(ColumnHead) == 16);

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void pad(std::string& bytes) { bytes.append((8 - bytes.size() % 8) % 8, '\0'); }

/// Takes parts off the front, as long as there is enough.
class Bytes {
 public:
  explicit Bytes(std::string_view all) : all_(all) {}

  std::string_view take(uint64_t count) {
    if (count > all_.size() - at_) {
      throw FrameError(
          fmt::format("a payload of {} bytes ends before its counts say so", all_.size()));
    }
    const std::string_view part = all_.substr(at_, count);
    at_ += count;
    return part;
  }
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  void skip_padding() { take((8 - at_ % 8) % 8); }

 private:
  std::string_view all_;
  std::size_t at_ = 0;
};

template <std::size_t kind = 0>
Column take_column(const ColumnHead& head, Bytes& bytes) {
  if constexpr (kind == std::variant_size_v<Column>) {
    throw FrameError(fmt::format("a column of kind {}", head.kind));
  } else {
    if (head.kind != kind + 1) return take_column<kind + 1>(head, bytes);
    using Numbers = std::variant_alternative_t<kind, Column>;
    constexpr uint64_t kSize = sizeof(typename Numbers::value_type);
    if (head.count > UINT64_MAX / kSize)
      throw FrameError(fmt::format("a column of {} numbers", head.count));
    const std::string_view part = bytes.take(head.count * kSize);
    Numbers numbers(head.count);
    if (!part.empty()) std::memcpy(numbers.data(), part.data(), part.size());
    return numbers;
  }
}

/// The column that a word of the head stands for; null where it stands for none.
const Column* column_of(const json::value& word, const Columns& columns) {
  const json::object* object = word.if_object();
  const json::value* place = object == nullptr ? nullptr : object->if_contains("$column");
  if (place == nullptr || !place->is_int64()) return nullptr;
  const int64_t index = place->get_int64();
  if (index < 0 || static_cast<uint64_t>(index) >= columns.size())
    throw FrameError(fmt::format("column {} of {}", index, columns.size()));
  return &columns[static_cast<std::size_t>(index)];
}

}  // namespace

std::string encode(const Payload& payload) {
  const std::string head = json_text(payload.head);
  std::string bytes;
  append(bytes, static_cast<uint32_t>(head.size()));
  append(bytes, static_cast<uint32_t>(payload.columns.size()));
  for (const Column& column : payload.columns) {
    const std::size_t count =
        std::visit([](const auto& numbers) { return numbers.size(); }, column);
    append(bytes, ColumnHead{.kind = static_cast<uint32_t>(column.index() + 1), .count = count});
  }
  bytes += head;
  pad(bytes);
  for (const Column& column : payload.columns) {
    std::visit(
        [&bytes](const auto& numbers) {
          bytes.append(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(numbers[0]));
        },
        column);
    pad(bytes);
  }
  return bytes;
}

Payload decode(std::string_view all) {
  Bytes bytes(all);
  const auto head_size = bytes.take<uint32_t>();
  const auto num_columns = bytes.take<uint32_t>();
  if (num_columns > kMostColumns)
    throw FrameError(
        fmt::format("{} columns in a frame; there may be {}", num_columns, kMostColumns));
  std::vector<ColumnHead> heads;
  for (uint32_t i = 0; i < num_columns; ++i) heads.push_back(bytes.take<ColumnHead>());
  Payload payload;
  try {
    json::value head = parse_json(bytes.take(head_size), "the head of a frame");
    if (!head.is_object()) throw FrameError("the head of a frame is no object");
    payload.head = std::move(head.get_object());
  } catch (const ConfigError& error) {
    throw FrameError(error.what());
  }
  bytes.skip_padding();
  for (const ColumnHead& head : heads) {
    payload.columns.push_back(take_column(head, bytes));
    bytes.skip_padding();
  }
  return payload;
}

namespace {

template <typename T>
std::vector<T> numbers(const json::value& word, const Columns& columns) {
  std::vector<T> all;
  if (const Column* column = column_of(word, columns)) {
    std::visit([&all](const auto& each) { all.assign(each.begin(), each.end()); }, *column);
    return all;
  }
  if (!word.is_array()) throw FrameError("no list of numbers where one is due");
  for (const json::value& number : word.get_array()) {
    if (!number.is_number()) throw FrameError("a list of numbers has something else");
    all.push_back(number.to_number<T>());
  }
  return all;
}

}  // namespace

std::vector<float> floats(const json::value& word, const Columns& columns) {
  return numbers<float>(word, columns);
}

std::vector<double> doubles(const json::value& word, const Columns& columns) {
  return numbers<double>(word, columns);
}

std::vector<int64_t> whole_numbers(const json::value& word, const Columns& columns) {
  std::vector<int64_t> numbers;
  if (const Column* column = column_of(word, columns)) {
    std::visit(
        [&numbers](const auto& all) {
          using Number = typename std::decay_t<decltype(all)>::value_type;
          if constexpr (std::is_integral_v<Number>) {
            numbers.assign(all.begin(), all.end());
          } else {
            throw FrameError("a column of fractions where whole numbers are due");
          }
        },
        *column);
    return numbers;
  }
  if (!word.is_array()) throw FrameError("no list of numbers where one is due");
  for (const json::value& number : word.get_array()) {
    if (!number.is_int64()) throw FrameError("a list of whole numbers has something else");
    numbers.push_back(number.get_int64());
  }
  return numbers;
}

}  // namespace slime::plugin
