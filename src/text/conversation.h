#pragma once

/// Renderer of conversations: messages to tokens, with the place of each answer of the assistant.
///
/// The tokens are always those of the whole conversation as the model's own template renders it.
/// An answer is what the model would write: it begins where the prompt that the template makes of
/// the messages before it ends, and ends with its end-of-turn mark, also where the template writes
/// that mark as the beginning of the next turn (docs/decisions/0092-conversation-renderer.md).
///
///   messages  user "hi", assistant "yo", user "a", assistant "b"      (a template in GLM's manner)
///   text      <|user|>hi<|assistant|>yo<|user|>a<|assistant|>b
///   answers                         [yo<|user|>]             [b]
///
/// Places come from what the template did (text/jinja/trace.h), never from looking for texts: a
/// message that quotes the marks of a conversation changes nothing.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "core/sample.h"
#include "text/chat_template.h"
#include "text/tokenizer/placed_token.h"

namespace slime::text {

class Tokenizer;

/// A tokenizer as a renderer needs it. The functions do not outlive what they refer to.
struct TokenPlacer {
  /// The tokens of a text with their places; no added token is read across a seam.
  std::function<std::vector<PlacedToken>(std::string_view text, std::span<const uint32_t> seams)>
      encode;
  std::vector<std::string> added_tokens;  // spellings
};
TokenPlacer make_token_placer(const Tokenizer& tokenizer);

struct ConversationOptions {
  ChatOptions chat;              // the template's variables; tools are given with the messages
  std::vector<TokenId> end_ids;  // at which answers end
  /// Marks of a conversation in what users and tools said are spelled as text:
  /// "--no-special-tokens-in-content".
  bool content_is_text = false;
};

struct RenderedText {
  std::string text;
  std::vector<PlacedToken> tokens;
  std::vector<TokenId> ids() const;
};

/// Tokens [first, last) of a conversation; none where the template leaves the answer out.
struct Answer {
  std::size_t message = 0;  // place among the messages
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t begin = 0;  // of the first token's part of the text that is the answer's, in bytes
};

struct RenderedConversation : RenderedText {
  /// One for each message of the assistant, in order; where the template marks what is generated, as
  /// many as it marks.
  std::vector<Answer> answers;
};

/// Immutable; may be used by any number of threads.
class ConversationRenderer final {
 public:
  /// `chat` outlives the object.
  ConversationRenderer(const ChatTemplate& chat, TokenPlacer tokenizer,
                       ConversationOptions options);

  /// What the model reads before it answers: the messages and the header of an answer. `tools` is
  /// an array or null. Fails with what the template says, where a message has no role, and where
  /// the template writes nothing of a message that is no answer and no instruction.
  Expected<RenderedText> prompt(const json::array& messages, const json::value& tools) const;
  /// The same without tokens.
  Expected<std::string> prompt_text(const json::array& messages, const json::value& tools) const;

  /// The whole conversation. Fails where a prompt does, and where the place of an answer cannot
  /// be told.
  Expected<RenderedConversation> conversation(const json::array& messages,
                                              const json::value& tools) const;

  /// Whether the template, given the messages up to an answer alone, renders that answer as it does
  /// in the whole conversation: false where it drops the thoughts of earlier answers.
  Expected<bool> is_as_written(const json::array& messages, const json::value& tools,
                               std::size_t message) const;

 private:
  struct Rendering;
  class AnswerFinder;

  Expected<Rendering> render(const json::array& messages, const json::value& tools,
                             bool with_header) const;
  Expected<Rendering> whole(const json::array& messages, const json::value& tools,
                            bool with_header) const;
  Expected<void> nothing_is_passed_over(const json::array& messages, const json::value& tools,
                                        const Rendering& rendering, bool with_header) const;
  Expected<std::vector<PlacedToken>> tokenize(const Rendering& rendering) const;

  const ChatTemplate& chat_;
  TokenPlacer tokenizer_;
  ConversationOptions options_;
};

}  // namespace slime::text
