#pragma once

/// Reader of an output: thoughts first, then what a machine of the format reads.
///
/// Some marks are marks only by what follows: one inside of a JSON string, of a parameter's value or
/// of thoughts is text if the string, value or thoughts end behind it, and ends them if they never
/// do. So the reader looks ahead from such a mark, and reads on from there once it is decided.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "text/messages/call_machine.h"
#include "text/messages/harmony_machine.h"
#include "text/messages/mark_lexer.h"
#include "text/messages/message_parser.h"

namespace slime::text {

/// One class because its members are the registers of one machine.
class MessageReader final {
 public:
  /// `format` outlives the object.
  MessageReader(const MessageFormat& format, MessageRequest request);
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  void feed(std::string_view text);
  void feed(TokenId id, std::string_view text);
  void finish(OutputEnd end);
  MessageWriter& writer() { return writer_; }

 private:
  using Item = MarkLexer::Item;
  enum class Part : uint8_t { kBefore, kLabel, kThoughts, kBehind, kMessage };
  enum class Doubt : uint8_t { kNone, kStringEnd, kQuoteEnd, kValueEnd, kThinkClose };

  void read_items();
  /// Returns where to read on.
  uint64_t read_item(const Item& item);
  uint64_t read_label(const Item& item);
  uint64_t read_thoughts(const Item& item);
  uint64_t read_behind(const Item& item);
  uint64_t read_message(const Item& item);
  Doubt doubt_of(const Item& item) const;
  void look_ahead(const Item& item);
  void look_for_string_end(const Item& item);
  void decide(bool is_mark, uint64_t text_end);
  uint64_t needed() const;

  MarkLexer lexer_;
  MessageWriter writer_;
  ToolSchemas no_tools_;
  bool reads_calls_;
  std::optional<CallMachine> calls_;
  std::optional<HarmonyMachine> harmony_;

  Part part_ = Part::kMessage;
  std::string_view label_;
  std::size_t label_read_ = 0;
  bool has_thoughts_ = false;  // text, after the opening mark
  static constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();
  uint64_t tail_ = kNowhere;  // of the ended output: what could have begun a mark

  Doubt doubt_ = Doubt::kNone;
  uint64_t doubtful_ = 0;             // the mark that is in doubt
  std::array<bool, 5> never_ends_{};  // by Doubt, of an ended output: once is enough to look
  bool is_escape_ = false;            // while the end of a string is looked for
  uint64_t text_until_ = 0;           // marks in front of here are text
  uint64_t mark_at_ = kNowhere;       // the one here is a mark
};

}  // namespace slime::text
