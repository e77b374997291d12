#include "buffer/line_reader.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
/// A prompt of 64 MiB is a file without line ends.
constexpr std::size_t kLineLimitBytes = std::size_t{64} << 20;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw ConfigError(
        fmt::format("{}: is a directory; a prompt file ends in .jsonl", path.string()));
  }
  if (!file_)
    throw ConfigError(fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
}

bool LineReader::read_line(std::string& line) {
  line.clear();
  while (true) {
    if (position_ == block_.size()) {
      block_.resize(kBlockBytes);
      file_.read(block_.data(), static_cast<std::streamsize>(kBlockBytes));
      block_.resize(static_cast<std::size_t>(file_.gcount()));
      position_ = 0;
      if (file_.bad())
        throw ConfigError(
            fmt::format("{}: read error after line {}", path_.string(), line_number_));
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
