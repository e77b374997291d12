#pragma once

/// Events out of what the state machines read: white space around calls, joined segments, ids,
/// limits.
///
/// White space that touches a call's marks is dropped and the segments that remain are joined by
/// one newline; without calls the content is the text as it is. So white space waits until it is
/// known what follows. Of thoughts, newlines at both ends belong to the form.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/messages/message.h"

namespace slime::text {

/// More calls in a message, or longer names, are text.
inline constexpr int kMostCalls = 128;
inline constexpr std::size_t kMostNameBytes = std::size_t{64} << 10;

/// Bytes [begin, end) of the output.
struct Span {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// One class because white space, joints and limits are decided on one stream of events.
class MessageWriter final {
 public:
  /// The id of call `index`; `written` is the one in the model's output, mostly empty.
  using MakeId =
      std::function<std::string(int index, std::string_view name, std::string_view written)>;
  struct Options {
    bool parallel_calls = true;    // false: nothing counts after the first call
    bool stream_reasoning = true;  // false: one delta of all thoughts
    MakeId make_id;
  };
  explicit MessageWriter(Options options) : options_(std::move(options)) {}

  /// One more token or piece was fed; `end` is the end of the output with it.
  void add_token(uint64_t end) { token_ends_.push_back(end); }

  void reasoning(std::string_view text, Span at);
  /// The closing mark of the thoughts.
  void close_reasoning();
  void content(std::string_view text, Span at);
  /// What follows is another segment.
  void break_content();
  void break_reasoning();

  bool may_begin_call() const { return num_calls_ < kMostCalls; }
  void begin_call(std::string_view name, std::string_view written_id, Span at);
  void arguments(std::string_view text, Span at);
  /// `is_json`: its arguments are a JSON object, or the output was cut.
  void end_call(bool is_json, Span at);
  /// A call's begin was cut off by the end of the output: white space in front of it goes with it.
  void drop_space();
  void count_unreadable() { ++num_errors_; }

  /// Thoughts that were never closed hold a call: until it begins, content is thoughts.
  void read_content_as_reasoning(bool is_reasoning) { content_is_reasoning_ = is_reasoning; }
  bool is_content_reasoning() const { return content_is_reasoning_; }
  /// Another message of content or of thoughts: they are joined by a newline.
  void join_content() {
    if (has_content_) break_content();
  }
  /// Gives out what waits.
  void finish();

  /// The first call has ended and parallel_calls is false.
  bool is_closed() const { return is_closed_; }
  int num_calls() const { return num_calls_; }
  int num_errors() const { return num_errors_; }
  std::vector<MessageEvent> take() { return std::exchange(events_, {}); }

 private:
  void emit(MessageEvent::Kind kind, std::string_view text, Span at, int call = -1);
  void flush_reasoning();
  FedRange tokens_of(Span at) const;
  bool is_waiting() const { return has_break_ && !is_segment_begun_; }

  Options options_;
  std::vector<MessageEvent> events_;
  std::vector<uint64_t> token_ends_;
  std::string content_space_;    // read after the content so far, not given out
  std::string reasoning_space_;  // the same of thoughts
  Span content_space_at_, reasoning_space_at_;
  MessageEvent held_reasoning_;  // without stream_reasoning
  int num_calls_ = 0;
  int num_errors_ = 0;
  bool has_content_ = false;         // more than white space, in any segment
  bool is_segment_begun_ = false;    // the same, in this segment
  bool has_break_ = false;           // this segment is not the first one
  bool has_reasoning_ = false;       // more than white space
  bool is_reasoning_begun_ = false;  // more than newlines, in this segment
  bool content_is_reasoning_ = false;
  bool is_closed_ = false;
};

}  // namespace slime::text
