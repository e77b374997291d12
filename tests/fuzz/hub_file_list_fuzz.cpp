// Bytes as the hub's list of a repository's files, and as the list that the cache keeps: paths stay in their folder,
// sizes and checksums are whole or not known, and what was kept is read as it was. Or an exception.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "fuzz_folder.h"
#include "hub/cache.h"
#include "hub/file_list.h"
#include "hub/hub_name.h"

using namespace slime;

namespace {

void check(const hub::Listing& listing) {
  if (!hub::is_commit(listing.commit) || listing.files.size() > hub::kMostListed) std::abort();
  for (const hub::RepoFile& file : listing.files) {
    if (!hub::is_safe_path(file.path) || file.size < -1) std::abort();
    if (!file.checksum.empty() && !hub::is_checksum(file.checksum)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const FuzzFolder kFolder;
  static const hub::RepoCache kCache(kFolder.path(), {.kind = hub::Kind::kModel, .repo = "a/b"});
  static const std::string kKept(40, 'c');
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  std::filesystem::create_directories(kCache.folder() / ".slime");
  kFolder.write("models--a--b/.slime/" + kKept + ".json", text);
  if (const auto kept = kCache.listing(kKept)) check(*kept);

  hub::Listing listing;
  try {
    listing = hub::parse_file_list(text, "a/b");
  } catch (const std::exception&) {  // the expected answer to most inputs
    return 0;
  }
  check(listing);
  listing.commit = kKept;  // one file, however many commits there are
  kCache.keep_listing(listing);
  const auto kept = kCache.listing(kKept);
  if (!kept || kept->files.size() != listing.files.size()) std::abort();
  for (std::size_t i = 0; i < listing.files.size(); ++i) {
    const hub::RepoFile& before = listing.files[i];
    const hub::RepoFile& after = kept->files[i];
    if (before.path != after.path || before.size != after.size || before.checksum != after.checksum)
      std::abort();
  }
  return 0;
}
