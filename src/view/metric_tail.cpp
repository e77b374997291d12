#include "view/metric_tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include "report/metric_row.h"

namespace slime::view {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChecked = 256;         // bytes before a position
constexpr std::uint64_t kLongestRow = 1 << 20;  // searched for its end
constexpr std::size_t kMostMetrics = 10'000;    // of a row

std::uint32_t checksum(std::string_view bytes) {  // FNV-1a
  std::uint32_t sum = 2166136261U;
  for (const char byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 16777619U;
  return sum;
}

std::string read_at(std::ifstream& file, std::uint64_t begin, std::uint64_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

std::string text_of_position(std::ifstream& file, std::uint64_t offset) {
  const std::uint64_t count = std::min(offset, kChecked);
  return fmt::format("{}.{:08x}", offset, checksum(read_at(file, offset - count, count)));
}

std::optional<std::uint64_t> offset_of(std::string_view position) {
  std::uint64_t offset = 0;
  const std::string_view digits = position.substr(0, position.find('.'));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), offset);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    return std::nullopt;
  return offset;
}

std::uint64_t size_of(const fs::path& file) {
  std::error_code gone;
  const std::uintmax_t size = fs::file_size(file, gone);
  return gone ? 0 : size;
}

std::optional<json::object> numbers_of(std::string_view line) {
  const std::optional<json::object> row = report::read_metric_row(line);
  if (!row || row->size() > kMostMetrics || !report::step_of_row(*row)) return std::nullopt;
  json::object numbers;
  for (const auto& [name, number] : *row)
    if (number.is_number() || number.is_null()) numbers[name] = number;
  return numbers;
}

}  // namespace

std::string tail_position(const fs::path& metrics) {
  const std::uint64_t size = size_of(metrics);
  std::ifstream file(metrics, std::ios::binary);
  if (!file || size == 0) return "0";
  const std::uint64_t count = std::min(size, kLongestRow);
  const std::string end = read_at(file, size - count, count);
  const std::size_t last = end.rfind('\n');
  if (last == std::string::npos) return size > count ? text_of_position(file, size) : "0";
  return text_of_position(file, size - count + last + 1);
}

TailRows rows_since(const fs::path& metrics, std::string_view position, std::size_t limit_bytes) {
  TailRows tail{.rows = {}, .position = std::string(position)};
  const std::optional<std::uint64_t> offset = offset_of(position);
  const std::uint64_t size = size_of(metrics);
  if (!offset || *offset > size) {
    tail.is_reset = true;
    tail.position = "0";
    return tail;
  }
  if (*offset == size) return tail;
  std::ifstream file(metrics, std::ios::binary);
  if (!file) return tail;
  if (*offset > 0 && text_of_position(file, *offset) != position) {
    tail.is_reset = true;
    tail.position = "0";
    return tail;
  }
  const std::string text =
      read_at(file, *offset, std::min<std::uint64_t>(size - *offset, limit_bytes + kLongestRow));
  std::size_t begin = 0;
  for (std::size_t end; begin < limit_bytes && (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    if (auto row = numbers_of(std::string_view(text).substr(begin, end - begin)))
      tail.rows.push_back(std::move(*row));
  }
  if (begin > 0) tail.position = text_of_position(file, *offset + begin);
  return tail;
}

}  // namespace slime::view
