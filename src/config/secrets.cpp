#include "config/secrets.h"

#include <algorithm>
#include <cstring>

#include "config/flag_table.h"
#include "core/secret_urls.h"

namespace slime::config {
namespace {

/// "--wandb_key=x" -> "wandb-key".
std::string bare_name(std::string_view word) {
  std::string name(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  name.erase(std::min(name.find('='), name.size()));
  std::ranges::replace(name, '_', '-');
  return name;
}

bool is_flag(std::string_view word) {
  return word.starts_with("--") && word.find_first_not_of('-') != std::string_view::npos;
}

/// Calls `hide(word, begin)` for each word with a secret, which begins there.
template <typename Words, typename Hide>
void for_each_secret(const Words& words, const Hide& hide) {
  bool follows = false;  // the words that follow belong to a secret flag
  for (std::size_t i = 0; i < std::size(words); ++i) {
    const std::string_view word = words[i];
    if (is_flag(word)) {
      follows = is_secret_flag(word);
      const std::size_t equals = word.find('=');
      if (follows && equals != std::string_view::npos) hide(i, equals + 1);
    } else if (follows) {
      hide(i, std::size_t{0});
    }
  }
}

json::value without_secrets(const json::value& value) {
  if (value.is_string()) return json::value(without_passwords(value.get_string()));
  if (!value.is_array()) return value;
  json::array list;
  for (const json::value& element : value.get_array()) list.push_back(without_secrets(element));
  return list;
}

}  // namespace

bool is_secret_flag(std::string_view word) {
  const std::string name = bare_name(word);
  return name == "wandb-key" || (find_flag("--" + name) == nullptr && is_secret_name(name));
}

json::object without_secrets(const json::object& flags) {
  json::object shown;
  for (const auto& [name, value] : flags) {
    const bool is_set = !value.is_null() && value != json::value("");
    shown[name] = is_set && is_secret_flag(name) ? json::value(kMasked) : without_secrets(value);
  }
  return shown;
}

void hide_secrets(std::span<char* const> arguments) {
  for (char* word : arguments) {
    if (without_passwords(word) == word) continue;
    char* url = std::strstr(word, "://");
    std::memset(url, '*', std::strlen(url));
  }
  for_each_secret(arguments, [&](std::size_t i, std::size_t begin) {
    char* secret = arguments[i] + begin;
    std::memset(secret, '*', std::strlen(secret));
  });
}

}  // namespace slime::config
