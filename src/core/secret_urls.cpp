#include "core/secret_urls.h"

#include <algorithm>
#include <array>

namespace slime {
namespace {

/// The rest of a URL behind its user name, with the values of secret parameters hidden.
void append_without_parameters(std::string& shown, std::string_view url) {
  while (!url.empty()) {
    const std::size_t end = std::min(url.find_first_of("?&", 1), url.size());
    const std::string_view part = url.substr(0, end);  // "?name=value" but for the first
    const std::size_t equals = part.find('=');
    const bool is_secret = (part[0] == '?' || part[0] == '&') && equals != std::string_view::npos &&
                           is_secret_name(part.substr(1, equals - 1));
    shown.append(is_secret ? part.substr(0, equals + 1) : part);
    if (is_secret) shown.append(kMasked);
    url.remove_prefix(end);
  }
}

}  // namespace

bool is_secret_name(std::string_view word) {
  static constexpr auto kWords =
      std::to_array<std::string_view>({"key", "token", "secret", "password", "passwd", "credential",
                                       "credentials", "auth", "authorization"});
  // Also without a hyphen before them: no other word ends like this.
  static constexpr auto kEnds = std::to_array<std::string_view>(
      {"apikey", "accesskey", "secretkey", "accesstoken", "authtoken", "password", "secret"});
  std::string name(word);
  std::ranges::replace(name, '_', '-');
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto is_word = [&](std::string_view end) {
    return name == end || name.ends_with("-" + std::string(end));
  };
  return std::ranges::any_of(kWords, is_word) ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

std::string without_passwords(std::string_view text) {
  std::string shown;
  while (true) {
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos) return shown.append(text);
    const std::size_t authority = scheme + 3;
    shown.append(text.substr(0, authority));
    text.remove_prefix(authority);
    const std::string_view host = text.substr(0, text.find_first_of("/?# \t\r\n\"'"));
    if (const std::size_t at = host.rfind('@'); at != std::string_view::npos) {
      shown.append(kMasked);
      text.remove_prefix(at);
    }
    const std::string_view url = text.substr(0, text.find_first_of(" \t\r\n\"'"));
    append_without_parameters(shown, url);
    text.remove_prefix(url.size());
  }
}

}  // namespace slime
