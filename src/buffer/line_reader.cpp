#include "buffer/line_reader.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::buffer {
namespace {

/// A prompt of 64 MiB is a file without line ends.
constexpr std::size_t kLineLimitBytes = std::size_t{64} << 20;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path) : path_(path), bytes_(path) {}

bool LineReader::read_line(std::string& line) {
  line.clear();
  while (true) {
    if (position_ == block_.size()) {
      bytes_.next(block_);
      position_ = 0;
      if (block_.empty()) return !line.empty();
    }
    const std::size_t end = block_.find('\n', position_);
    line.append(block_, position_, end == std::string::npos ? end : end - position_);
    if (line.size() > kLineLimitBytes) {
      throw ConfigError(
          fmt::format("{}, line {}: longer than {} MiB; a prompt file has one JSON object per line",
                      path_.string(), line_number_ + 1, kLineLimitBytes >> 20));
    }
    position_ = end == std::string::npos ? block_.size() : end + 1;
    if (end != std::string::npos) return true;
  }
}

std::optional<std::string> LineReader::next() {
  std::string line;
  while (read_line(line)) {
    ++line_number_;
    if (line_number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    while (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t\r\f\v") != std::string::npos) return line;
  }
  return std::nullopt;
}

}  // namespace slime::buffer
