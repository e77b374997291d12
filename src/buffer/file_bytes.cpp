#include "buffer/file_bytes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "buffer/row_form.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw ConfigError(fmt::format("{}: is a directory, not a file of rows", path.string()));
  if (!file_)
    throw ConfigError(fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  const auto form = form_of(path);
  if (form && !form->packing.empty()) packed_ = std::make_unique<PackedBytes>(path, form->packing);
}

void FileBytes::next(std::string& block) {
  block.resize(kBlockBytes);
  if (packed_) {
    block.resize(packed_->read(block.data(), block.size()));
    return;
  }
  file_.read(block.data(), static_cast<std::streamsize>(block.size()));
  block.resize(static_cast<std::size_t>(file_.gcount()));
  if (file_.bad()) throw ConfigError(fmt::format("{}: read error", path_.string()));
}

}  // namespace slime::buffer
