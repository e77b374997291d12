#include "text/messages/json_arguments.h"

#include <fmt/format.h>

#include <iterator>

#include "core/json.h"
#include "text/messages/white_space.h"

namespace slime::text {
JsonScanner::Step JsonArguments::step(char byte) {
  const bool was_in_string = scanner_.is_in_string();
  const JsonScanner::Step step = scanner_.step(byte);
  if (step != JsonScanner::Step::kBefore) add(byte, !was_in_string && is_white_space(byte));
  return step;
}

std::size_t JsonArguments::read(std::string_view text) {
  std::size_t taken = 0;
  while (taken < text.size() && !is_whole_) {
    const char byte = text[taken++];
    is_text_ |= !is_begun_ && !is_white_space(byte) && byte != '{' && byte != '[';
    if (is_text_) {
      add(byte, is_white_space(byte));
    } else if (step(byte) == JsonScanner::Step::kLast) {
      is_whole_ = is_valid();
      is_text_ = !is_whole_;  // what follows text that is no JSON may belong to it
    }
  }
  return taken;
}

void JsonArguments::add_text(char byte) {
  is_text_ = true;
  add(byte, is_white_space(byte));
}

void JsonArguments::add(char byte, bool is_space) {
  if (is_space) {
    if (is_begun_) space_ += byte;
    return;
  }
  is_begun_ = true;
  ready_ += space_;
  space_.clear();
  ready_ += byte;
}

std::string decode_json_string(std::string_view raw, bool& is_valid) {
  // The last backslash that no other one escapes begins an escape; is all of it there?
  std::size_t at = 0;
  while (at < raw.size()) {
    if (raw[at] != '\\') {
      ++at;
      continue;
    }
    const std::size_t length = at + 1 < raw.size() && raw[at + 1] == 'u' ? 6 : 2;
    if (at + length > raw.size()) raw = raw.substr(0, at);
    at += length;
  }
  std::string quoted = "\"";
  for (const char byte : raw) {
    // Newlines that the model wrote as they are.
    if (static_cast<unsigned char>(byte) < 0x20) {
      fmt::format_to(std::back_inserter(quoted), "\\u{:04x}", static_cast<unsigned char>(byte));
    } else {
      quoted += byte;
    }
  }
  quoted += '"';
  const auto value = try_parse_json(quoted);
  is_valid = value.has_value() && value->is_string();
  return is_valid ? std::string(value->get_string()) : std::string();
}

void append_json_escaped(std::string_view text, std::string& out) {
  for (const char byte : text) {
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(byte) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(byte));
        } else {
          out += byte;
        }
    }
  }
}

}  // namespace slime::text
