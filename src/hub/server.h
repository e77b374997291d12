#pragma once

/// Requests to the server of the hub: redirects, the token, waiting where the server asks for it, and refusals
/// in words.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "hub/cache.h"
#include "hub/hub_name.h"
#include "hub/settings.h"
#include "net/web_client.h"

namespace slime::hub {

/// No connection to the server, however often it was tried.
class Unreachable : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// May be used from several threads at once.
class Server {
 public:
  explicit Server(const Settings& settings) : settings_(settings) {}

  /// All files of a repository. Throws Unreachable, or ConfigError with why there are none: no such
  /// repository or revision, one that wants a token or has terms to accept.
  Listing list(const HubName& name, const std::string& revision) const;

  /// Size and checksum of a file where a listing has none.
  RepoFile look_at(const HubName& name, const std::string& commit, const std::string& path) const;

  struct Receiver {
    std::function<int64_t()> come;  // bytes that it has
    std::function<void()> restart;  // the server begins at the beginning all the same
    std::function<void(std::string_view bytes)> take;
  };
  /// Gives a receiver the bytes of a file that it does not have yet. Tries again after failures, from
  /// where it came to. Throws as above.
  void read(const HubName& name, const std::string& commit, const std::string& path,
            const Receiver& receiver) const;

 private:
  using Answer = Expected<net::WebHead, net::WebError>;

  /// Follows redirects; on_each sees their headers too.
  Answer call(net::WebCall call, const std::function<void(const net::WebHead&)>& on_each) const;
  std::string file_url(const HubName& name, const std::string& commit,
                       const std::string& path) const;
  [[noreturn]] void refuse(const HubName& name, std::string_view what,
                           const net::WebHead& head) const;

  const Settings& settings_;
};

}  // namespace slime::hub
