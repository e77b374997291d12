#include "chat/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "core/safe_text.h"

namespace slime::chat {
namespace {

using std::chrono::steady_clock;

constexpr auto kRedraw = std::chrono::milliseconds(120);

int64_t words_in(std::string_view text) {
  int64_t count = 0;
  bool is_in_word = false;
  for (const char c : text) {
    const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!is_space && !is_in_word) ++count;
    is_in_word = !is_space;
  }
  return count;
}

double seconds(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// Bytes at the end that begin a character of UTF-8 and do not end it.
std::size_t unfinished_bytes(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string painted_token(std::string_view bytes, double log_prob,
                          const report::Terminal& terminal) {
  const double probability = std::exp(std::min(log_prob, 0.0));
  const int percent = static_cast<int>(std::lround(probability * 100));
  const std::string text = safe_text(bytes);
  if (!terminal.has_color) return fmt::format("{}({:.2f})", text, probability);
  const int color = probability >= 0.9   ? 32   // green
                    : probability >= 0.5 ? 36   // cyan
                    : probability >= 0.1 ? 33   // yellow
                                         : 31;  // red
  std::string number;
  if (terminal.has_unicode) {
    constexpr std::array<const char*, 10> kSmall{"\u2080", "\u2081", "\u2082", "\u2083", "\u2084",
                                                 "\u2085", "\u2086", "\u2087", "\u2088", "\u2089"};
    for (const char digit : std::to_string(percent))
      number += kSmall[static_cast<std::size_t>(digit - '0')];
  } else {
    number = fmt::format("[{}]", percent);
  }
  // A line feed at the end stays behind the number.
  const std::size_t feed = text.find_last_not_of('\n');
  const std::size_t cut = feed == std::string::npos ? 0 : feed + 1;
  const std::string shown = cut == 0 ? "\\n" : text.substr(0, cut);
  return fmt::format("\033[{}m{}\033[2m{}\033[0m{}", color, shown, number, text.substr(cut));
}

Screen::Screen(report::Terminal terminal, Write write, Now now)
    : terminal_(terminal), write_(std::move(write)), now_(std::move(now)) {}

std::string Screen::dim(std::string_view text) const {
  return terminal_.has_color ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

void Screen::print(std::string_view text) {
  if (text.empty()) return;
  write_(text);
  is_at_line_begin_ = text.ends_with('\n');
}

void Screen::begin(Look look) {
  look_ = look;
  at_ = At::kNothing;
  is_at_line_begin_ = true;
  undecided_.clear();
}

std::string Screen::thought_line(const Answer& answer) const {
  return fmt::format("thought for {:.1f} s, {} words", seconds(thoughts_end_ - thoughts_begin_),
                     words_in(answer.thoughts));
}

void Screen::add_thoughts(const AnswerPart& part) {
  const auto now = now_();
  if (at_ != At::kThoughts) {
    at_ = At::kThoughts;
    thoughts_begin_ = now;
    thoughts_drawn_ = {};
  }
  thoughts_end_ = now;
  if (!terminal_.is_live) return;  // a pipe has the answer alone
  if (look_.unfolds_thoughts) return print(dim(safe_text(part.thoughts)));
  if (now - thoughts_drawn_ < kRedraw) return;
  thoughts_drawn_ = now;
  write_("\r\033[K" + dim(fmt::format("thinking, {:.1f} s", seconds(now - thoughts_begin_))));
}

void Screen::end_thoughts(const Answer& answer) {
  if (at_ != At::kThoughts) return;
  at_ = At::kContent;
  if (!terminal_.is_live) return;
  if (look_.unfolds_thoughts) {
    if (!is_at_line_begin_) print("\n");
    return print(dim("(" + thought_line(answer) + ")") + "\n");
  }
  write_("\r\033[K" + dim(thought_line(answer) + " (/thoughts unfolds)") + "\n");
  is_at_line_begin_ = true;
}

void Screen::add_tokens(const AnswerPart& part) {
  for (const DrawnToken& token : part.tokens) {
    // Tokens that end within a character are shown with the one that ends it.
    undecided_ += token.bytes;
    if (unfinished_bytes(undecided_) > 0) continue;
    print(painted_token(undecided_, token.log_prob, terminal_));
    undecided_.clear();
  }
}

void Screen::add(const AnswerPart& part, const Answer& answer) {
  if (look_.shows_probabilities) {
    at_ = At::kTokens;
    return add_tokens(part);
  }
  if (!part.thoughts.empty()) add_thoughts(part);
  if (part.content.empty()) return;
  const bool is_first = at_ == At::kThoughts;
  end_thoughts(answer);
  std::string_view text = part.content;
  // Models begin behind their thoughts with empty lines.
  if (is_first) {
    const std::size_t begin = text.find_first_not_of('\n');
    text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
  }
  at_ = At::kContent;
  undecided_ += text;
  const std::size_t rest = unfinished_bytes(undecided_);
  print(safe_text(std::string_view(undecided_).substr(0, undecided_.size() - rest)));
  undecided_.erase(0, undecided_.size() - rest);
}

void Screen::end(const Answer& answer, bool is_stopped) {
  end_thoughts(answer);
  if (!undecided_.empty()) print(safe_text(undecided_));
  undecided_.clear();
  for (const ToolCall& call : answer.calls) {
    if (!is_at_line_begin_) print("\n");
    const std::string line =
        fmt::format("-> {}({})", safe_text(call.name), safe_text(call.arguments));
    print((terminal_.has_color ? fmt::format("\033[35m{}\033[0m", line) : line) + "\n");
  }
  if (!is_at_line_begin_) print("\n");
  if (!terminal_.is_live) {
    const bool is_empty = answer.content.empty() && answer.calls.empty() && at_ != At::kTokens;
    if (is_empty) print("\n");  // an answer all the same
    return;
  }
  if (is_stopped) print(dim("(stopped)") + "\n");
  if (answer.finish == "length")
    print(dim("(cut off: /set max_tokens, or the context is full)") + "\n");
}

void Screen::show_thoughts(const Answer& answer) {
  print(dim(answer.thoughts.empty() ? "the last answer has no thoughts"
                                    : safe_text(answer.thoughts)));
  if (!is_at_line_begin_ || answer.thoughts.empty() || !answer.thoughts.ends_with('\n'))
    print("\n");
}

}  // namespace slime::chat
