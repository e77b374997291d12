#pragma once

/// Models and data sets by name: the one resolver of all commands. A word that names a path stays one;
/// a name becomes a path in the cache, which is filled from the hub where it has to be.
///
/// The cache comes first: what lies there whole is used without a question to the server, at the commit
/// that was main when it was fetched. `refresh` asks for the newest.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "hub/cache.h"
#include "hub/download.h"
#include "hub/hub_name.h"
#include "hub/selection.h"
#include "hub/server.h"
#include "hub/settings.h"

namespace slime::hub {

class Hub {
 public:
  struct Config {
    Settings settings;
    bool may_download = true;  // false: what is not in the cache stays a name
    bool refresh = false;      // ask which commit is the newest
    OnTransfer on_transfer = {};
    std::function<void(const std::string& sentence)> say = {};
  };

  explicit Hub(Config config) : config_(std::move(config)), server_(config_.settings) {}

  /// The directory of a model. A path, and a name that may not be downloaded, come back as they
  /// are. Throws ConfigError that begins with `flag` and the word.
  std::string model(const std::string& word, Wanted wanted, std::string_view flag) const;

  /// The files of a split as one pattern with its slice, "/cache/.../main/train-*.parquet@[:100]".
  /// Otherwise as above.
  std::string data(const std::string& word, std::string_view default_split,
                   std::string_view flag) const;

 private:
  /// A repository at one commit: with all its files, or, where nobody can be asked, with those that the cache
  /// happens to have.
  struct Repo {
    HubName name;
    RepoCache cache;
    Listing listing;
    bool is_listed = false;
    std::string why_not;  // nobody can be asked

    std::vector<std::string> paths() const;
    std::filesystem::path snapshot() const { return cache.snapshot(listing.commit); }
  };

  Repo open(const HubName& name) const;
  /// Sees that files are in the snapshot.
  void ensure(const Repo& repo, const std::vector<std::string>& paths) const;
  std::string find_model(const HubName& name, Wanted wanted) const;
  std::string find_data(const HubName& name, std::string_view default_split) const;
  [[noreturn]] void refuse_absent(const HubName& name, const RepoCache& cache,
                                  const std::string& why) const;

  Config config_;
  Server server_;
};

}  // namespace slime::hub
