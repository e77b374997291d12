#include "engine/http/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace slime::engine {

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
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
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

void append_log_prob(std::string& out, float log_prob) {
  if (std::isnan(log_prob)) {
    out += "null";
    return;
  }
  if (std::isinf(log_prob)) log_prob = std::copysign(std::numeric_limits<float>::max(), log_prob);
  const std::size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", log_prob);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

std::string base64_of(const std::vector<std::int32_t>& numbers) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes;
  bytes.reserve(numbers.size() * 4 + 2);
  for (const std::int32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<unsigned char>(static_cast<std::uint32_t>(number) >> shift));
    }
  }
  const std::size_t size = bytes.size();
  const std::size_t padding = (3 - size % 3) % 3;
  bytes.resize(size + padding);
  std::string text;
  text.reserve(bytes.size() / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t group =
        static_cast<std::uint32_t>(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[group >> shift & 63];
  }
  std::fill_n(text.rbegin(), padding, '=');
  return text;
}

std::string_view GrowingText::take(bool only_new) {
  const std::string_view taken = std::string_view(text).substr(only_new ? num_sent : 0);
  num_sent = text.size();
  return taken;
}

void ArrayText::append_to(std::string& out, std::string_view name, bool only_new) {
  std::string_view elements = take(only_new);
  if (!elements.empty()) elements.remove_suffix(1);
  out += out.back() == '{' ? "\"" : ",\"";
  out += name;
  out += "\":[";
  out += elements;
  out += ']';
}

}  // namespace slime::engine
