#include "hub/file_list.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "core/json.h"

namespace slime::hub {
namespace {

RepoFile to_file(const json::value& value) {
  const json::object& entry = value.as_object();
  RepoFile file{.path = std::string(entry.at("rfilename").as_string()), .size = -1, .checksum = ""};
  if (!is_safe_path(file.path))
    throw std::runtime_error("a file has the path " + json_text(std::string_view(file.path)));
  const json::value* size = entry.if_contains("size");
  if (size != nullptr && size->is_int64() && size->get_int64() >= 0) file.size = size->get_int64();
  const json::value* large = entry.if_contains("lfs");
  const json::object* lfs = large == nullptr ? nullptr : large->if_object();
  const json::value* checksum =
      lfs != nullptr ? lfs->if_contains("sha256") : entry.if_contains("blobId");
  if (checksum != nullptr && checksum->is_string() && is_checksum(checksum->get_string()))
    file.checksum = std::string(checksum->get_string());
  return file;
}

}  // namespace

Listing parse_file_list(std::string_view text, std::string_view where) {
  const json::value answer = parse_json(text, where);
  Listing listing{.commit = std::string(answer.as_object().at("sha").as_string()), .files = {}};
  if (!is_commit(listing.commit)) throw std::runtime_error("sha is no commit");
  const json::array& siblings = answer.as_object().at("siblings").as_array();
  if (siblings.size() > kMostListed) throw std::runtime_error("more files than 200,000");
  for (const json::value& each : siblings) listing.files.push_back(to_file(each));
  return listing;
}

}  // namespace slime::hub
