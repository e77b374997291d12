#include "hub/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "core/error.h"
#include "core/lower_case.h"

namespace slime::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestToken = 4096;

bool is_true(const std::string& given) {
  const std::string word = lower_case(given);
  return word == "1" || word == "on" || word == "yes" || word == "true";
}

/// "~/x" with the home folder, as the hub's tools read it.
fs::path expanded(const std::string& path, const Variables& variables) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return variables("HOME").value_or("/") + path.substr(1);
}

std::optional<std::string> first_of(const Variables& variables,
                                    std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto value = variables(name)) return value;
  return std::nullopt;
}

fs::path home_of_hub(const Variables& variables) {
  if (const auto home = variables("HF_HOME")) return expanded(*home, variables);
  const auto cache = variables("XDG_CACHE_HOME");
  return (cache ? expanded(*cache, variables) : expanded("~/.cache", variables)) / "huggingface";
}

/// Of a variable, or of the file that the hub's login command writes.
std::string token_of(const Variables& variables, const fs::path& home) {
  std::string token;
  if (const auto given = first_of(variables, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})) {
    token = *given;
  } else if (!is_true(variables("HF_HUB_DISABLE_IMPLICIT_TOKEN").value_or(""))) {
    const auto path = variables("HF_TOKEN_PATH");
    std::ifstream file(path ? expanded(*path, variables) : home / "token");
    std::getline(file, token);
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!token.empty() && is_blank(token.back())) token.pop_back();
  while (!token.empty() && is_blank(token.front())) token.erase(0, 1);
  const bool is_printable = std::ranges::all_of(token, [](char c) { return c > ' ' && c < 127; });
  if (token.size() > kLongestToken || !is_printable)
    throw ConfigError("HF_TOKEN, or the file with it: is no token: it should be one word in ASCII");
  return token;
}

bool is_this_machine(const std::string& origin) {
  return origin.starts_with("http://127.") || origin.starts_with("http://localhost:") ||
         origin.starts_with("http://[::1]");
}

}  // namespace

Settings settings_of(const Variables& variables) {
  Settings settings;
  const fs::path home = home_of_hub(variables);
  const auto cache = first_of(variables, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  settings.cache = cache ? expanded(*cache, variables) : home / "hub";
  if (const auto endpoint = variables("HF_ENDPOINT")) settings.endpoint = *endpoint;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const std::string origin = net::origin_of(settings.endpoint);
  if (origin.empty())
    throw ConfigError(fmt::format("HF_ENDPOINT {}: should be a URL such as https://huggingface.co",
                                  settings.endpoint));
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"})
    settings.is_offline = settings.is_offline || is_true(variables(name).value_or(""));
  settings.token = token_of(variables, home);
  if (!settings.token.empty() && origin.starts_with("http://") && !is_this_machine(origin)) {
    throw ConfigError(
        fmt::format("HF_ENDPOINT {}: the token would travel unencrypted; use https://, or "
                    "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 and no HF_TOKEN",
                    settings.endpoint));
  }
  if (const auto seconds = variables("HF_HUB_DOWNLOAD_TIMEOUT")) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(seconds->data(), seconds->data() + seconds->size(), number);
    constexpr double kLongest = 86'400;
    if (error != std::errc() || end != seconds->data() + seconds->size() || !(number >= 0.001) ||
        number > kLongest)
      throw ConfigError(fmt::format("HF_HUB_DOWNLOAD_TIMEOUT {}: should be seconds", *seconds));
    settings.web.silence_limit = std::chrono::milliseconds(static_cast<int64_t>(number * 1000));
  }
  settings.web.https_proxy =
      first_of(variables, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}).value_or("");
  // HTTP_PROXY in capitals is what web servers make of a header of their clients.
  settings.web.http_proxy =
      first_of(variables, {"http_proxy", "all_proxy", "ALL_PROXY"}).value_or("");
  settings.web.no_proxy = first_of(variables, {"no_proxy", "NO_PROXY"}).value_or("");
  settings.web.ca_file =
      first_of(variables, {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}).value_or("");
  return settings;
}

}  // namespace slime::hub
