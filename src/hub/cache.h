#pragma once

/// The cache of Hugging Face's tools on this machine, which this program shares with them.
///
///   models--Qwen--Qwen3-0.6B/
///     refs/main                          "c1899de2..." (a commit)
///     snapshots/c1899de2.../config.json  -> ../../blobs/6c5a...
///     blobs/6c5a...                      named by its checksum: SHA-256, or Git's of small files
///     blobs/6c5a....incomplete           as far as a download came
///     .slime/c1899de2....json            ours: all files of the commit, so that one can tell what is missing
///   .locks/models--Qwen--Qwen3-0.6B/6c5a....lock
///
/// Names of files come from a server: a path that leaves its folder is refused.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/hub_name.h"

namespace slime::hub {

/// One file of a repository.
struct RepoFile {
  std::string path;      // "data/train-00000-of-00001.parquet"
  int64_t size = -1;     // bytes; -1: not known yet
  std::string checksum;  // 64 digits of SHA-256, or 40 of Git's SHA-1; empty: not known yet
};

/// All files of a repository at one commit.
struct Listing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepoFile> files;

  const RepoFile* find(std::string_view path) const;
};

bool is_commit(std::string_view text);
bool is_checksum(std::string_view text);
/// Whether a path stays below the folder that it is joined to, and has no odd bytes.
bool is_safe_path(std::string_view path);

/// One repository in the cache. Reading changes nothing; writing makes folders as needed. Throws
/// ConfigError where the disk refuses.
class RepoCache {
 public:
  RepoCache(std::filesystem::path root, const HubName& name);

  const std::filesystem::path& folder() const { return folder_; }
  /// The commit that a revision was when somebody last asked; nothing: nobody did.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& commit) const;
  bool has(const std::string& commit, std::string_view path) const;
  /// Paths of the files of a snapshot, sorted.
  std::vector<std::string> files_of(const std::string& commit) const;
  std::optional<Listing> listing(const std::string& commit) const;

  void keep_listing(const Listing& listing) const;
  void set_commit(const std::string& revision, const std::string& commit) const;
  std::filesystem::path blob(const std::string& checksum) const;
  std::filesystem::path lock_file(const std::string& checksum) const;
  /// Puts the blob of a file into a snapshot.
  void link(const std::string& commit, const RepoFile& file) const;

 private:
  std::filesystem::path root_, folder_;
};

}  // namespace slime::hub
