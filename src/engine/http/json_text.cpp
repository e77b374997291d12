#include "engine/http/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base64.h"

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
  std::string bytes;
  bytes.reserve(numbers.size() * 4);
  for (const std::int32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(static_cast<std::uint32_t>(number) >> shift & 0xFF);
  }
  return to_base64(bytes);
}

std::string base64_of(const std::vector<float>& numbers) {
  std::vector<std::int32_t> bits;
  bits.reserve(numbers.size());
  for (const float number : numbers) bits.push_back(std::bit_cast<std::int32_t>(number));
  return base64_of(bits);
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
