#pragma once

/// Settings of the hub from the environment: the variables that its own tools read, with the same
/// meaning.
///
///   HF_HOME, HF_HUB_CACHE        where downloads are kept: ~/.cache/huggingface/hub
///   HF_ENDPOINT                  another server with the hub's routes
///   HF_TOKEN, HF_TOKEN_PATH      who asks; a file with it lies in HF_HOME/token
///   HF_HUB_OFFLINE               1: only what is in the cache
///   HF_HUB_DOWNLOAD_TIMEOUT      seconds of silence after which a connection counts as lost
///   HTTPS_PROXY, HTTP_PROXY, NO_PROXY, SSL_CERT_FILE

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "net/web_client.h"

namespace slime::hub {

struct Settings {
  std::string endpoint = "https://huggingface.co";
  std::filesystem::path cache;  // the folder of "models--Qwen--Qwen3-0.6B"
  std::string token;            // a secret: goes into the header of requests to `endpoint` alone
  bool is_offline = false;
  net::WebSettings web;
  int num_connections = 4;
  int num_attempts = 5;                        // in a row, without a byte of progress
  std::chrono::milliseconds first_wait{1000};  // before the second attempt; then twice as long
};

/// The value of a variable that is set and not empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Throws ConfigError for a variable that cannot be meant: an endpoint that is no URL, a token that
/// would travel unencrypted.
Settings settings_of(const Variables& variables);

}  // namespace slime::hub
