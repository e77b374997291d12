#include "engine/http/anthropic/tool_input.h"

#include <array>
#include <optional>

namespace slime::engine {
namespace {

using text::JsonScanner;
using Step = JsonScanner::Step;

constexpr std::string_view kJsonSpace = " \t\r\n";
constexpr std::string_view kRawMember = R"("_raw":null})";

bool is_space(char byte) { return kJsonSpace.find(byte) != std::string_view::npos; }

/// The scanner after `text`, when that goes on with the value; `ends`: and ends it.
std::optional<JsonScanner> after(JsonScanner scanner, std::string_view text, bool ends) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Step step = scanner.step(text[i]);
    const bool is_last = i + 1 == text.size();
    const bool is_wanted = is_last && ends ? step == Step::kLast : step == Step::kInside;
    if (!is_wanted || !scanner.is_valid()) return std::nullopt;
  }
  return scanner;
}

/// What may come next in a value that was cut anywhere, the shortest way to its end first.
constexpr auto kInString = std::to_array<std::string_view>({"\"", "0"});
constexpr auto kElsewhere =
    std::to_array<std::string_view>({"}", "]", ":null", "null", "0", "rue", "ue", "alse", "lse",
                                     "se", "e", "ull", "ll", "l", "\""});

}  // namespace

std::string ToolInput::add(std::string_view arguments) {
  raw_ += arguments;
  std::string out;
  for (const char byte : arguments) step(byte, out);
  sent_ += out;
  return out;
}

void ToolInput::step(char byte, std::string& out) {
  if (state_ == State::kBroken || (state_ != State::kInside && is_space(byte))) return;
  if (state_ == State::kWhole || (state_ == State::kBefore && byte != '{')) {
    state_ = State::kBroken;
    return;
  }
  JsonScanner next = scanner_;
  const Step step = next.step(byte);
  if (!next.is_valid()) {
    state_ = State::kBroken;
  } else if (step == Step::kLast) {
    state_ = State::kWhole;  // the brace goes out when nothing follows it
  } else {
    state_ = State::kInside;
    scanner_ = next;
    out += byte;
  }
}

/// Members and brackets that are open, then the raw text as a last member.
std::string ToolInput::closing() const {
  JsonScanner scanner = scanner_;
  std::string text;
  const std::string raw = R"("_raw":)" + json_text(std::string_view(raw_)) + "}";
  for (;;) {
    if (after(scanner, kRawMember, true)) return text + raw;
    if (after(scanner, "," + std::string(kRawMember), true)) return text + "," + raw;
    std::optional<JsonScanner> next;
    const auto take = [&](std::string_view candidate) {
      if (next || !(next = after(scanner, candidate, false))) return;
      text += candidate;
    };
    if (scanner.is_in_string()) {
      for (const std::string_view candidate : kInString) take(candidate);
    } else {
      for (const std::string_view candidate : kElsewhere) take(candidate);
    }
    if (!next) return text;  // cannot be: some candidate goes on with any value
    scanner = *next;
  }
}

std::string ToolInput::finish() {
  std::string rest;
  if (state_ == State::kWhole) {
    rest = "}";
  } else if (!sent_.empty()) {
    rest = closing();
  } else if (raw_.find_first_not_of(kJsonSpace) == std::string::npos) {
    rest = "{}";
  } else {
    rest = json_text(json::object{{"_raw", raw_}});
  }
  sent_ += rest;
  return rest;
}

json::object ToolInput::object() const {
  std::optional<json::value> value = try_parse_json(sent_);
  if (value && value->is_object()) return std::move(value->get_object());
  return {{"_raw", raw_}};
}

}  // namespace slime::engine
