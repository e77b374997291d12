#include "text/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "text/content_guard.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

std::string_view role_of(const json::value& message) {
  const json::value* role =
      message.is_object() ? message.get_object().if_contains("role") : nullptr;
  return role != nullptr && role->is_string() ? std::string_view(role->get_string())
                                              : std::string_view();
}

constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

std::size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(),
                    a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
}

/// What keeps messages from being a conversation, whatever the template.
std::optional<std::string> message_without_role(const json::array& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!role_of(messages[i]).empty()) continue;
    std::string fields;
    if (const json::object* message = messages[i].if_object()) {
      for (const auto& member : *message)
        fields += (fields.empty() ? "; it has " : ", ") + std::string(member.key());
    }
    return fmt::format(
        "message {} has no \"role\"{}: a message is {{\"role\": \"user\", \"content\": ...}}", i,
        fields);
  }
  return std::nullopt;
}

json::array first_messages(const json::array& messages, std::size_t count) {
  return json::array(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

TokenPlacer make_token_placer(const Tokenizer& tokenizer) {
  return {.encode =
              [&tokenizer](std::string_view text, std::span<const uint32_t> seams) {
                return tokenizer.encode_placed(text, seams);
              },
          .added_tokens = tokenizer.added_tokens()};
}

std::vector<TokenId> RenderedText::ids() const {
  std::vector<TokenId> all;
  all.reserve(tokens.size());
  for (const PlacedToken& token : tokens) all.push_back(token.id);
  return all;
}

/// What the template made of some messages.
struct ConversationRenderer::Rendering {
  std::string text;
  jinja::Trace trace;
  std::vector<uint32_t> seams;

  /// Whether anything was written for a message in a loop over messages.
  bool has_text_of(std::size_t message) const {
    return std::ranges::any_of(trace.pieces, [&](const jinja::Trace::Piece& piece) {
      return piece.subject == static_cast<int>(message) && piece.begin < piece.end;
    });
  }

  /// The text that was written for a message; nothing where it is not one piece.
  std::optional<jinja::Trace::Piece> block(std::size_t message) const {
    std::optional<jinja::Trace::Piece> found;
    for (const jinja::Trace::Piece& piece : trace.pieces) {
      if (piece.subject != static_cast<int>(message)) continue;
      if (found) return std::nullopt;
      found = piece;
    }
    return found;
  }
};

/// Finds the answers of one conversation.
class ConversationRenderer::AnswerFinder {
 public:
  AnswerFinder(const ConversationRenderer& renderer, const json::array& messages,
               const json::value& tools, const Rendering& whole,
               const std::vector<PlacedToken>& tokens)
      : renderer_(renderer), messages_(messages), tools_(tools), whole_(whole), tokens_(tokens) {}

  Expected<std::vector<Answer>> find() {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (role_of(messages_[i]) == "assistant") places.push_back(i);
    }
    if (!whole_.trace.generations.empty()) return marked_answers(places);
    std::vector<Answer> answers;
    for (const std::size_t i : places) {
      auto answer = find(i);
      if (!answer) return tl::make_unexpected(answer.error());
      answers.push_back(*answer);
    }
    return answers;
  }

 private:
  /// The template itself says what is generated: {% generation %}.
  Expected<std::vector<Answer>> marked_answers(const std::vector<std::size_t>& places) const {
    const auto& marks = whole_.trace.generations;
    const bool knows_messages = std::ranges::any_of(
        marks, [](const auto& mark) { return mark.subject != jinja::Trace::kNone; });
    if (!knows_messages && marks.size() != places.size()) {
      return failure(fmt::format(
          "the template marks {} generated parts for {} messages of the assistant, outside of a "
          "loop over messages",
          marks.size(), places.size()));
    }
    std::vector<Answer> answers;
    std::size_t message = places.empty() ? 0 : places.front();
    for (std::size_t m = 0; m < marks.size(); ++m) {
      if (!knows_messages) message = places[m];
      // What is marked after the loop belongs to the last answer.
      if (marks[m].subject != jinja::Trace::kNone)
        message = static_cast<std::size_t>(marks[m].subject);
      if (marks[m].begin < marks[m].end)
        answers.push_back(tokens_of(message, marks[m].begin, marks[m].end));
    }
    return answers;
  }

  Expected<Answer> find(std::size_t message) {
    const auto block = whole_.block(message);
    const auto end = block ? std::optional(block->end) : end_by_prefix(message);
    const auto begin = header_end(message, block);
    if (!begin || !end) {
      return failure(fmt::format(
          "message {} (assistant): its place in the rendered text cannot be told: the template "
          "neither writes it in a loop over messages, nor does its text follow that of the "
          "messages before; mark it in the template with {{% generation %}}{}",
          message, problem_.empty() ? "" : " (" + problem_ + ")"));
    }
    if (*begin > *end) {
      return failure(fmt::format(
          "message {} (assistant): the prompt that the template makes of the messages before it is "
          "longer than what it writes for the answer",
          message));
    }
    Answer answer = tokens_of(message, *begin, *end);
    answer.last = with_end_mark(answer);
    return answer;
  }

  Answer tokens_of(std::size_t message, std::size_t begin, std::size_t end) const {
    const auto first = std::ranges::find_if(
        tokens_, [begin](const PlacedToken& token) { return token.end > begin; });
    const auto last = std::find_if(first, tokens_.end(),
                                   [end](const PlacedToken& token) { return token.begin >= end; });
    return {message, static_cast<std::size_t>(first - tokens_.begin()),
            static_cast<std::size_t>(last - tokens_.begin()), begin};
  }

  std::string_view text_of(const PlacedToken& token) const {
    return std::string_view(whole_.text).substr(token.begin, token.end - token.begin);
  }

  bool is_end(const PlacedToken& token) const {
    return token.kind == TokenKind::kSpecial ||
           std::ranges::find(renderer_.options_.end_ids, token.id) !=
               renderer_.options_.end_ids.end();
  }

  /// Where the template gives an answer no mark of its own at its end, the model ends it with the
  /// mark that begins the next turn.
  std::size_t with_end_mark(const Answer& answer) const {
    const bool goes_on = answer.message + 1 < messages_.size() &&
                         role_of(messages_[answer.message + 1]) == "assistant";
    if (goes_on) return answer.last;
    std::size_t own = answer.last;
    while (own > answer.first && is_blank(text_of(tokens_[own - 1]))) --own;
    const PlacedToken* own_mark = own > answer.first ? &tokens_[own - 1] : nullptr;
    if (own_mark != nullptr && is_end(*own_mark)) return answer.last;
    std::size_t next = answer.last;
    while (next < tokens_.size() && tokens_[next].kind == TokenKind::kText &&
           is_blank(text_of(tokens_[next])))
      ++next;
    if (next == tokens_.size()) return answer.last;
    const bool may_be_added = own_mark == nullptr || own_mark->kind == TokenKind::kText;
    const bool is_mark =
        is_end(tokens_[next]) || (may_be_added && tokens_[next].kind == TokenKind::kAdded);
    return is_mark ? next + 1 : answer.last;
  }

  std::optional<std::size_t> end_by_prefix(std::size_t message) {
    if (message + 1 == messages_.size()) return whole_.text.size();
    const auto before =
        renderer_.render(first_messages(messages_, message + 1), tools_, /*with_header=*/false);
    if (!before) {
      problem_ = before.error().message;
      return std::nullopt;
    }
    if (!whole_.text.starts_with(before->text)) return std::nullopt;
    return before->text.size();
  }

  /// Where the header of an answer ends: what the model would have been given in front of it.
  std::optional<std::size_t> header_end(std::size_t message,
                                        const std::optional<jinja::Trace::Piece>& block) {
    const std::string_view text = whole_.text;
    if (message == 0) return block ? own_header_end(*block) : std::nullopt;
    const auto prompt =
        renderer_.render(first_messages(messages_, message), tools_, /*with_header=*/true);
    if (!prompt) {
      problem_ = prompt.error().message;
      return block ? own_header_end(*block) : std::nullopt;
    }
    if (text.starts_with(prompt->text)) return prompt->text.size();
    if (!block) return std::nullopt;
    // Something earlier was rewritten, or the answer's own beginning: compared from the message
    // before on.
    const auto here = whole_.block(message - 1), there = prompt->block(message - 1);
    const std::string_view header =
        there ? std::string_view(prompt->text).substr(there->end) : std::string_view();
    std::size_t common = 0;
    if (here && there) {
      const std::string_view rest = std::string_view(prompt->text).substr(there->begin);
      common = here->begin + common_length(rest, text.substr(here->begin));
      if (common - here->begin == rest.size()) return common;
    }
    if (const auto end = whole_header(header, *block)) return end;
    if (common > block->begin) return at_a_boundary(common, block->begin);
    // The message before was rewritten too; what the template puts after it was not.
    return header_within(header, *block);
  }

  /// The header as the template writes it after the whole conversation.
  std::optional<std::size_t> own_header_end(const jinja::Trace::Piece& block) {
    const auto with_header = renderer_.render(messages_, tools_, /*with_header=*/true);
    if (!with_header || !with_header->text.starts_with(whole_.text)) return std::nullopt;
    return header_within(std::string_view(with_header->text).substr(whole_.text.size()), block);
  }

  std::string_view written(const jinja::Trace::Piece& block) const {
    return std::string_view(whole_.text).substr(block.begin, block.end - block.begin);
  }

  /// Where a header ends that stands at the beginning of a block, whatever white space is in front
  /// of it.
  std::optional<std::size_t> whole_header(std::string_view header,
                                          const jinja::Trace::Piece& block) const {
    const std::string_view text = written(block);
    const std::size_t first = header.find_first_not_of(kBlanks);
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (first == std::string_view::npos || begin == std::string_view::npos) return std::nullopt;
    const std::string_view core =
        header.substr(first, header.find_last_not_of(kBlanks) + 1 - first);
    if (!text.substr(begin).starts_with(core)) return std::nullopt;
    return block.begin + begin + common_length(header.substr(first), text.substr(begin));
  }

  std::size_t header_within(std::string_view header, const jinja::Trace::Piece& block) const {
    if (const auto end = whole_header(header, block)) return *end;
    return at_a_boundary(block.begin + common_length(header, written(block)), block.begin);
  }

  /// A header of which only the beginning is there (a template that opens a thought in the prompt,
  /// and drops the thoughts of earlier answers) ends after a mark or white space: what is equal
  /// after that is so by chance.
  std::size_t at_a_boundary(std::size_t place, std::size_t floor) const {
    for (std::size_t at = place; at > floor; --at) {
      if (is_blank(std::string_view(whole_.text).substr(at - 1, 1))) return at;
      const auto token = std::ranges::lower_bound(tokens_, at, {}, &PlacedToken::end);
      if (token != tokens_.end() && token->end == at && token->kind != TokenKind::kText) return at;
    }
    return place;
  }

  const ConversationRenderer& renderer_;
  const json::array& messages_;
  const json::value& tools_;
  const Rendering& whole_;
  const std::vector<PlacedToken>& tokens_;
  std::string problem_;  // what the template said of some of the messages
};

ConversationRenderer::ConversationRenderer(const ChatTemplate& chat, TokenPlacer tokenizer,
                                           ConversationOptions options)
    : chat_(chat), tokenizer_(std::move(tokenizer)), options_(std::move(options)) {}

Expected<ConversationRenderer::Rendering> ConversationRenderer::render(const json::array& messages,
                                                                       const json::value& tools,
                                                                       bool with_header) const {
  ChatOptions options = options_.chat;
  options.add_generation_prompt = with_header;
  options.continue_final_message = false;
  if (!tools.is_null()) options.tools = tools;
  std::optional<ContentGuard> guard;
  if (options_.content_is_text) {
    auto made = ContentGuard::make(messages, options.tools, tokenizer_.added_tokens);
    if (!made) return tl::make_unexpected(made.error());
    guard = std::move(*made);
  }
  Rendering rendering;
  auto text = chat_.render(guard ? guard->messages() : messages, options, &rendering.trace);
  if (!text) return failure("chat template: " + text.error().message);
  rendering.text = std::move(*text);
  if (guard) {
    auto seams = guard->take_out(rendering.text, rendering.trace);
    if (!seams) return tl::make_unexpected(seams.error());
    rendering.seams = std::move(*seams);
  }
  return rendering;
}

/// Templates pass over roles that they do not know without a word: a prompt would lack its question.
/// A message that can be changed without a change in the text is such a one. Of answers and
/// instructions it is the template's to decide.
Expected<void> ConversationRenderer::nothing_is_passed_over(const json::array& messages,
                                                            const json::value& tools,
                                                            const Rendering& rendering,
                                                            bool with_header) const {
  constexpr auto kTemplates = std::to_array<std::string_view>({"assistant", "system", "developer"});
  constexpr auto kUsual = std::to_array<std::string_view>({"user", "tool"});
  const bool writes_in_a_loop =
      std::ranges::any_of(rendering.trace.pieces, [](const jinja::Trace::Piece& piece) {
        return piece.subject != jinja::Trace::kNone && piece.begin < piece.end;
      });
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = role_of(messages[i]);
    const json::value* content = messages[i].get_object().if_contains("content");
    if (std::ranges::find(kTemplates, role) != kTemplates.end() || content == nullptr ||
        !content->is_string() || rendering.has_text_of(i))
      continue;
    const bool is_usual = std::ranges::find(kUsual, role) != kUsual.end();
    if (is_usual && !writes_in_a_loop) continue;
    json::array changed = messages;
    changed[i].get_object()["content"] = std::string(content->get_string()) + "x";
    const auto other = render(changed, tools, with_header);
    if (!other || other->text != rendering.text) continue;
    return failure(
        fmt::format("message {} ({}): the chat template writes nothing of it{}", i, role,
                    is_usual ? "" : ": templates know system, user, assistant and perhaps tool"));
  }
  return {};
}

Expected<std::vector<PlacedToken>> ConversationRenderer::tokenize(
    const Rendering& rendering) const {
  try {
    return tokenizer_.encode(rendering.text, rendering.seams);
  } catch (const ConfigError& error) {  // a text that the tokenizer cannot read
    return failure(error.what());
  }
}

Expected<ConversationRenderer::Rendering> ConversationRenderer::whole(const json::array& messages,
                                                                      const json::value& tools,
                                                                      bool with_header) const {
  if (auto problem = message_without_role(messages)) return failure(std::move(*problem));
  auto rendering = render(messages, tools, with_header);
  if (!rendering) return tl::make_unexpected(rendering.error());
  const auto complete = nothing_is_passed_over(messages, tools, *rendering, with_header);
  if (!complete) return tl::make_unexpected(complete.error());
  return rendering;
}

Expected<std::string> ConversationRenderer::prompt_text(const json::array& messages,
                                                        const json::value& tools) const {
  auto rendering = whole(messages, tools, /*with_header=*/true);
  if (!rendering) return tl::make_unexpected(rendering.error());
  return std::move(rendering->text);
}

Expected<RenderedText> ConversationRenderer::prompt(const json::array& messages,
                                                    const json::value& tools) const {
  auto rendering = whole(messages, tools, /*with_header=*/true);
  if (!rendering) return tl::make_unexpected(rendering.error());
  auto tokens = tokenize(*rendering);
  if (!tokens) return tl::make_unexpected(tokens.error());
  return RenderedText{std::move(rendering->text), std::move(*tokens)};
}

Expected<RenderedConversation> ConversationRenderer::conversation(const json::array& messages,
                                                                  const json::value& tools) const {
  auto rendering = whole(messages, tools, /*with_header=*/false);
  if (!rendering) return tl::make_unexpected(rendering.error());
  auto tokens = tokenize(*rendering);
  if (!tokens) return tl::make_unexpected(tokens.error());
  auto answers = AnswerFinder(*this, messages, tools, *rendering, *tokens).find();
  if (!answers) return tl::make_unexpected(answers.error());
  RenderedConversation out;
  out.text = std::move(rendering->text);
  out.tokens = std::move(*tokens);
  out.answers = std::move(*answers);
  return out;
}

Expected<bool> ConversationRenderer::is_as_written(const json::array& messages,
                                                   const json::value& tools,
                                                   std::size_t message) const {
  if (message + 1 == messages.size()) return true;
  const auto whole = render(messages, tools, /*with_header=*/false);
  if (!whole) return tl::make_unexpected(whole.error());
  const auto then = render(first_messages(messages, message + 1), tools, /*with_header=*/false);
  if (!then) return tl::make_unexpected(then.error());
  if (whole->text.starts_with(then->text)) return true;
  const auto now_block = whole->block(message), then_block = then->block(message);
  if (!now_block || !then_block) return false;
  return std::string_view(whole->text)
             .substr(now_block->begin, now_block->end - now_block->begin) ==
         std::string_view(then->text)
             .substr(then_block->begin, then_block->end - then_block->begin);
}

}  // namespace slime::text
