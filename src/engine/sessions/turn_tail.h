#pragma once

/// Text that a chat template puts behind a turn, read off a rendering with a mark in the turn's place.
///
/// The turn itself is not looked for: templates drop its thoughts, trim it or write its calls anew.
///
///   <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nMARK<|im_end|>\n<|im_start|>user\n ...
///                                            behind a turn that was cut off ^
///                                    behind one that sampled its <|im_end|>           ^
///
/// So a prompt that goes on from a turn is the turn's own tokens and those of this text.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/sample.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// Texts of the tokenizer's control tokens, one of which ends a turn.
std::vector<std::string> end_marks_of(const text::Tokenizer& tokenizer);

class TurnTail final {
 public:
  /// `messages`: as a chat request has them, the turn as one message at `turn_index`. `options`: the
  /// template's. `end_marks`: end_marks_of the tokenizer. The references outlive the object.
  TurnTail(const ServedModel& model, const std::vector<std::string>& end_marks,
           const json::array& messages, std::size_t turn_index, const json::object& options);

  /// `end_mark`: the control token that ended the turn, empty where none did. Nothing when the template
  /// does not show the turn, or ends it with another role's mark than was sampled.
  std::optional<std::string> text_behind(std::string_view end_mark);

 private:
  std::optional<std::string> render(json::value turn, bool shows_rest, bool hides_words,
                                    bool adds_prompt = true) const;
  std::optional<std::string> behind_mark(const json::value& stand_in, bool hides_words) const;
  std::size_t num_shown();
  bool ends_with_mark(const json::value& stand_in) const;
  std::optional<std::string> behind(const json::value& stand_in, bool has_calls,
                                    std::string_view end_mark);

  const ServedModel& model_;
  const std::vector<std::string>& end_marks_;
  const json::array& messages_;
  const std::size_t turn_index_;
  const json::object& options_;
  std::optional<std::size_t> num_shown_;
};

/// Tokens of `tail`, the text behind a turn, as they are behind the control token that ended it: some
/// tokenizers put a space before a text that begins a line of its own.
std::vector<TokenId> tokens_behind(const ServedModel& model, TokenId last_output,
                                   std::string_view end_mark, std::string_view tail);

}  // namespace slime::engine
