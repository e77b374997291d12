#include "engine/sessions/turn_tail.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/messages.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

// Words that no conversation has.
constexpr std::string_view kTurn = "slime0turn0mark";
constexpr std::string_view kLater = "slime0later0mark";

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + word.size()))
    ++count;
  return count;
}

struct PlacedMark {
  std::size_t at = std::string_view::npos;
  std::size_t length = 0;
};

/// The first of the marks, the longest of those that begin there.
PlacedMark first_mark(std::string_view text, const std::vector<std::string>& marks) {
  PlacedMark first;
  for (const std::string& mark : marks) {
    const std::size_t at = text.find(mark);
    if (at < first.at ||
        (at == first.at && at != std::string_view::npos && mark.size() > first.length))
      first = {at, mark.size()};
  }
  return first;
}

/// The arguments of a marked call: the last one that it has is the mark.
json::object marked_arguments(const json::object& function) {
  std::string name = "mark";
  if (const json::value* arguments = function.if_contains("arguments")) {
    json::value parsed = *arguments;
    if (const json::string* text = arguments->if_string())
      parsed = try_parse_json(*text).value_or(json::value());
    const json::object* object = parsed.if_object();
    if (object != nullptr && !object->empty()) name = std::prev(object->end())->key();
  }
  return {{name, kTurn}};
}

/// The turn with the mark as the last thing in its i-th call, which is its last one; nothing where that is
/// no function's.
std::optional<json::value> with_marked_call(const json::object& turn, std::size_t i) {
  json::object marked = turn;
  json::object call = turn.at("tool_calls").get_array()[i].get_object();
  const json::value* function = call.if_contains("function");
  const json::value* custom = call.if_contains("custom");
  if (function != nullptr && function->is_object()) {
    json::object named = function->get_object();
    named["arguments"] = marked_arguments(named);
    call["function"] = std::move(named);
  } else if (custom != nullptr && custom->is_object()) {
    json::object named = custom->get_object();
    named["input"] = kTurn;
    call["custom"] = std::move(named);
  } else {
    return std::nullopt;
  }
  marked["tool_calls"].get_array()[i] = std::move(call);
  return marked;
}

std::size_t num_calls(const json::object& turn) {
  const json::value* calls = turn.if_contains("tool_calls");
  return calls != nullptr && calls->is_array() ? calls->get_array().size() : 0;
}

}  // namespace

std::vector<std::string> end_marks_of(const text::Tokenizer& tokenizer) {
  std::vector<std::string> marks;
  const auto add = [&](const std::string& text) {
    if (!text.empty() && std::ranges::find(marks, text) == marks.end()) marks.push_back(text);
  };
  for (const std::string& text : tokenizer.added_tokens()) {
    const auto id = tokenizer.id_of(text);
    if (id && tokenizer.is_special(*id)) add(text);
  }
  for (const auto& [name, text] : tokenizer.special_tokens()) add(text);
  return marks;
}

TurnTail::TurnTail(const ServedModel& model, const std::vector<std::string>& end_marks,
                   const json::array& messages, std::size_t turn_index, const json::object& options)
    : model_(model),
      end_marks_(end_marks),
      messages_(messages),
      turn_index_(turn_index),
      options_(options) {}

/// The conversation with another message in the turn's place; without the rest of it, or with words in
/// place of what later messages say. Nothing when the template refuses it.
std::optional<std::string> TurnTail::render(json::value turn, bool shows_rest, bool hides_words,
                                            bool adds_prompt) const {
  const auto place = static_cast<std::ptrdiff_t>(turn_index_);
  json::array messages(messages_.begin(), messages_.begin() + place);
  messages.push_back(std::move(turn));
  if (shows_rest) messages.insert(messages.end(), messages_.begin() + place + 1, messages_.end());
  for (std::size_t i = turn_index_ + 1; hides_words && i < messages.size(); ++i)
    messages[i].get_object()["content"] = kLater;
  std::vector<std::string> problems;
  const json::array fitting = normalised_messages(messages, model_.chat->traits(), problems);
  if (!problems.empty()) return std::nullopt;
  json::object options = options_;
  if (!adds_prompt) options["add_generation_prompt"] = false;
  try {
    return model_.chat->render(fitting, options);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::optional<std::string> TurnTail::behind_mark(const json::value& stand_in,
                                                 bool hides_words) const {
  const std::optional<std::string> text = render(stand_in, true, hides_words);
  if (!text) return std::nullopt;
  const std::size_t at = text->find(kTurn);
  if (at == std::string::npos || text->find(kTurn, at + 1) != std::string::npos)
    return std::nullopt;
  return text->substr(at + kTurn.size());
}

/// How many of the later messages the template shows where the turn is itself.
std::size_t TurnTail::num_shown() {
  if (!num_shown_) {
    const auto text = render(messages_[turn_index_], true, true);
    num_shown_ = text ? count_of(*text, kLater) : messages_.size() - turn_index_ - 1;
  }
  return *num_shown_;
}

/// Whether the template closes a turn by a mark of its own, also where nothing follows; otherwise the next
/// role's mark is what ends it.
bool TurnTail::ends_with_mark(const json::value& stand_in) const {
  const std::optional<std::string> text = render(stand_in, false, false, false);
  if (!text) return false;
  const std::size_t at = text->find(kTurn);
  if (at == std::string::npos) return false;
  const std::string_view closing = std::string_view(*text).substr(at + kTurn.size());
  return first_mark(closing, end_marks_).at != std::string_view::npos;
}

std::optional<std::string> TurnTail::behind(const json::value& stand_in, bool has_calls,
                                            std::string_view end_mark) {
  if (end_mark.empty() && has_calls)
    return std::nullopt;  // a call that was cut off is not closed by the template's text
  std::optional<std::string> behind = behind_mark(stand_in, false);
  const bool has_rest = turn_index_ + 1 < messages_.size();
  const std::optional<std::string> probe = has_rest ? behind_mark(stand_in, true) : behind;
  if (!behind || !probe) return std::nullopt;
  if (has_rest && count_of(*probe, kLater) < num_shown()) return std::nullopt;
  if (end_mark.empty()) return behind;
  // Up to the text of the next message, which may have marks of its own.
  const std::string_view before_later = std::string_view(*probe).substr(0, probe->find(kLater));
  const auto common =
      static_cast<std::size_t>(std::ranges::mismatch(*behind, before_later).in1 - behind->begin());
  const std::string_view gap = std::string_view(*behind).substr(0, common);
  if (const std::size_t at = gap.find(end_mark); at != std::string_view::npos)
    return behind->substr(at + end_mark.size());
  if (has_calls) return std::nullopt;
  const PlacedMark mark = first_mark(gap, end_marks_);
  if (mark.at == std::string_view::npos) return behind;  // a template without control tokens
  if (!ends_with_mark(stand_in)) return std::nullopt;
  return behind->substr(mark.at +
                        mark.length);  // the template's own end stands for the sampled one
}

std::optional<std::string> TurnTail::text_behind(std::string_view end_mark) {
  const json::object& turn = messages_[turn_index_].get_object();
  if (const std::size_t count = num_calls(turn); count > 0) {
    // The last call, then the first one, where a template shows no other.
    for (const std::size_t i : {count - 1, std::size_t{0}}) {
      const std::optional<json::value> stand_in = with_marked_call(turn, i);
      if (stand_in) {
        if (auto text = behind(*stand_in, true, end_mark)) return text;
      }
      if (count == 1) break;
    }
  }
  const json::object plain{{"role", "assistant"}, {"content", kTurn}};
  return behind(plain, false, end_mark);
}

std::vector<TokenId> tokens_behind(const ServedModel& model, TokenId last_output,
                                   std::string_view end_mark, std::string_view tail) {
  if (tail.empty()) return {};
  if (!end_mark.empty()) {
    std::vector<TokenId> ids =
        encode_prompt(model, "messages", std::string(end_mark) + std::string(tail), false);
    if (!ids.empty() && ids.front() == last_output) {
      ids.erase(ids.begin());
      return ids;
    }
  }
  return encode_prompt(model, "messages", tail, false);
}

}  // namespace slime::engine
