#pragma once

/// Keys and passwords inside URLs, which no message and no log may show. A text that holds a URL of
/// the user's is masked where it is made.

#include <string>
#include <string_view>

namespace slime {

/// What is written in the place of a secret.
inline constexpr std::string_view kMasked = "***";

/// Whether what has this name is a secret: its last word is key, token, secret, password,
/// credentials or auth ("api_key", "hf-token"), or it ends like "apikey". Case does not count.
bool is_secret_name(std::string_view name);

/// `text` with the secrets of each URL hidden: user name and password ("http://***@host/"), and
/// parameters with a secret name ("http://host/judge?token=***").
std::string without_passwords(std::string_view text);

}  // namespace slime
