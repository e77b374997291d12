#include "engine/chat/custom_input.h"

#include <optional>
#include <utility>

#include "core/json.h"

namespace slime::engine {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kBegin = R"({"input":")";
constexpr std::string_view kInputKey = R"("input")";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

/// White space may stand between JSON's tokens, of which the key is one.
bool may_be_space(std::size_t place) { return place <= 1 || place > kInputKey.size(); }

/// The first half of a surrogate pair needs the second one.
bool is_whole(std::string_view escape) {
  if (escape.size() < 2) return false;
  if (escape[1] != 'u') return true;
  if (escape.size() < 6) return false;
  const bool is_first_half = (escape[2] == 'd' || escape[2] == 'D') &&
                             std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
  if (!is_first_half || escape.size() >= 12) return true;
  return (escape.size() > 6 && escape[6] != '\\') || (escape.size() > 7 && escape[7] != 'u');
}

}  // namespace

std::string CustomInput::add(std::string_view arguments) {
  std::string out;
  for (const char byte : arguments) step(byte, out);
  return out;
}

void CustomInput::step(char byte, std::string& out) {
  if (state_ == State::kText) return step_in_text(byte, out);
  if (state_ == State::kAfter) return;
  read_ += byte;
  if (state_ == State::kOther) return;
  if (may_be_space(num_begun_) && kSpace.find(byte) != std::string_view::npos) return;
  state_ = byte != kBegin[num_begun_]      ? State::kOther
           : ++num_begun_ == kBegin.size() ? State::kText
                                           : State::kBefore;
}

void CustomInput::step_in_text(char byte, std::string& out) {
  if (!escape_.empty()) {
    escape_ += byte;
    if (is_whole(escape_)) end_escape(out);
  } else if (byte == '\\') {
    escape_ = byte;
  } else if (byte == '"') {
    state_ = State::kAfter;
  } else {
    out += byte;
  }
}

void CustomInput::end_escape(std::string& out) {
  const std::string escape = std::exchange(escape_, {});
  const std::optional<json::value> value = try_parse_json('"' + escape + '"');
  if (value && value->is_string()) {
    out += std::string_view(value->get_string());
    return;
  }
  out += kReplacement;  // half of a pair; what follows it is read on its own
  for (std::size_t i = 6; i < escape.size(); ++i) step(escape[i], out);
}

std::string CustomInput::finish() {
  std::string out;
  if (!escape_.empty()) end_escape(out);
  if (state_ == State::kText || state_ == State::kAfter) return out;
  const std::optional<json::value> value = try_parse_json(read_);
  const json::object* object = value ? value->if_object() : nullptr;
  const json::value* input = object == nullptr ? nullptr : object->if_contains("input");
  if (input != nullptr && input->is_string()) return std::string(input->get_string());
  return read_;
}

}  // namespace slime::engine
