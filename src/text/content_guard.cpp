#include "text/content_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace slime::text {
namespace {

// Noncharacters, which no text for exchange has: U+FDD0 .. U+FDEF.
constexpr int kFirst = 0xFDD0;
constexpr int kCount = 32;

std::string utf8(int point) {
  return {static_cast<char>(0xE0 | (point >> 12)), static_cast<char>(0x80 | ((point >> 6) & 0x3F)),
          static_cast<char>(0x80 | (point & 0x3F))};
}

bool is_guarded(const json::value& message) {
  const json::object* object = message.if_object();
  const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
  if (role == nullptr || !role->is_string()) return false;
  const std::string_view name = role->get_string();
  return name != "assistant" && name != "system" && name != "developer";
}

std::size_t char_length(std::string_view text, std::size_t at) {
  std::size_t length = 1;
  while (at + length < text.size() &&
         (static_cast<unsigned char>(text[at + length]) & 0xC0) == 0x80)
    ++length;
  return length;
}

/// Finds marks and their beginnings.
class Marks {
 public:
  explicit Marks(std::span<const std::string> marks) {
    for (const std::string& mark : marks) {
      // Runs of spaces are added tokens of some models, and no marks.
      if (mark.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      whole_.insert(mark);
      longest_ = std::max(longest_, mark.size());
      for (std::size_t length = 1; length < mark.size(); ++length)
        beginnings_.insert(mark.substr(0, length));
    }
  }

  std::string guarded(std::string_view text, const std::string& character) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = char_length(text, at);
      out += text.substr(at, length);
      if (begins_mark(text.substr(at))) out += character;
      at += length;
    }
    for (std::size_t length = std::min(longest_, text.size()); length > 0; --length) {
      if (!beginnings_.contains(std::string(text.substr(text.size() - length)))) continue;
      out += character;
      break;
    }
    return out;
  }

 private:
  bool begins_mark(std::string_view text) const {
    for (std::size_t length = 1; length <= std::min(longest_, text.size()); ++length) {
      const std::string head(text.substr(0, length));
      if (whole_.contains(head)) return true;
      if (!beginnings_.contains(head)) return false;
    }
    return false;
  }

  std::unordered_set<std::string> whole_, beginnings_;
  std::size_t longest_ = 0;
};

void guard_texts(json::value& value, const Marks& marks, const std::string& character) {
  if (json::string* text = value.if_string()) {
    *text = marks.guarded(*text, character);
  } else if (json::array* list = value.if_array()) {
    for (json::value& element : *list) guard_texts(element, marks, character);
  } else if (json::object* object = value.if_object()) {
    for (auto& member : *object) {
      if (member.key() != "role" && member.key() != "type")
        guard_texts(member.value(), marks, character);
    }
  }
}

}  // namespace

Expected<ContentGuard> ContentGuard::make(const json::array& messages, const json::value& tools,
                                          std::span<const std::string> marks) {
  const std::string all = json_text(messages) + json_text(tools);
  ContentGuard guard;
  for (int point = kFirst; point < kFirst + kCount && guard.character_.empty(); ++point) {
    const std::string character = utf8(point), escaped = fmt::format("\\u{:04x}", point);
    if (all.find(character) != std::string::npos || all.find(escaped) != std::string::npos)
      continue;
    guard.character_ = character;
    guard.escaped_ = escaped;
  }
  if (guard.character_.empty()) {
    return failure(
        "the messages use all noncharacters U+FDD0 to U+FDEF; one of them has to be free to tell "
        "content from marks");
  }
  guard.messages_ = messages;
  const Marks known(marks);
  for (json::value& message : guard.messages_) {
    if (is_guarded(message)) guard_texts(message, known, guard.character_);
  }
  return guard;
}

Expected<std::vector<uint32_t>> ContentGuard::take_out(std::string& text,
                                                       jinja::Trace& trace) const {
  if (text.find(escaped_) != std::string::npos) {
    return failure(
        "the chat template escapes what users and tools said, so marks in it cannot be told from "
        "the template's own");
  }
  std::vector<uint32_t> seams;
  std::vector<std::size_t> taken;  // where the characters stood
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(character_, at), text.size());
    clean.append(text, at, next - at);
    if (next == text.size()) break;
    taken.push_back(next);
    if (seams.empty() || seams.back() != clean.size())
      seams.push_back(static_cast<uint32_t>(clean.size()));
    at = next + character_.size();
  }
  const auto moved = [&](std::size_t place) {
    const auto before = std::ranges::lower_bound(taken, place) - taken.begin();
    return place - static_cast<std::size_t>(before) * character_.size();
  };
  for (std::vector<jinja::Trace::Piece>* pieces : {&trace.pieces, &trace.generations}) {
    for (jinja::Trace::Piece& piece : *pieces) {
      piece.begin = moved(piece.begin);
      piece.end = moved(piece.end);
    }
  }
  text = std::move(clean);
  return seams;
}

}  // namespace slime::text
