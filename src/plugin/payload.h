#pragma once

/// Payload of plug-in frames: a JSON head, followed by columns of numbers
/// (docs/plugin_protocol.md). Bytes of a host are a stranger's: every count is checked.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.h"

namespace slime::plugin {

/// In the order of their kinds on the wire, from 1.
using Column = std::variant<std::vector<int32_t>, std::vector<int64_t>, std::vector<float>,
                            std::vector<double>, std::vector<uint8_t>>;
using Columns = std::vector<Column>;

struct Payload {
  json::object head;
  Columns columns;
};

std::string encode(const Payload& payload);

/// Throws net::FrameError for bytes that are no payload.
Payload decode(std::string_view bytes);

/// The head's word for numbers: they become a column.
template <typename T>
json::value add_column(Columns& columns, std::vector<T> numbers) {
  columns.emplace_back(std::move(numbers));
  return json::object{{"$column", static_cast<int64_t>(columns.size()) - 1}};
}

/// A list of whole numbers that stands in the head or is a column of it. Throws net::FrameError.
std::vector<int64_t> whole_numbers(const json::value& word, const Columns& columns);
/// The same of numbers of any kind.
std::vector<float> floats(const json::value& word, const Columns& columns);
std::vector<double> doubles(const json::value& word, const Columns& columns);

}  // namespace slime::plugin
