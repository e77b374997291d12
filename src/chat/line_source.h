#pragma once

/// Lines that a person types, with editing and history on a terminal, or lines of a pipe.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slime::chat {

/// Bytes of a question, all its lines together.
inline constexpr std::size_t kLongestQuestion = std::size_t{1} << 20;

enum class LineEnd { kLine, kInterrupted, kEnd };

struct TypedLine {
  LineEnd how = LineEnd::kEnd;
  std::string text;  // without the line feed
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  /// Waits for the next line. Ctrl-C abandons it, Ctrl-D on an empty one is the end.
  virtual TypedLine next(const std::string& prompt) = 0;
};

/// Words that the tab key completes: those that begin a line with this text.
using CompleteFn = std::function<std::vector<std::string>(const std::string& begin)>;

/// On the terminal of standard input, by libedit (emacs or vi keys, ~/.editrc). SIGINT is blocked when it is
/// made, in every thread that is started later, and taken while a line is typed. Lines go to `history`, a file
/// for this user alone; empty: none is kept.
std::unique_ptr<LineSource> edited_lines(const std::filesystem::path& history, CompleteFn complete);

/// Standard input as it comes. Throws ConfigError for a line that is longer than a question may be, or that is not
/// UTF-8, and std::system_error where it cannot be read.
std::unique_ptr<LineSource> plain_lines();

}  // namespace slime::chat
