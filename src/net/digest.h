#pragma once

/// Checksums of files that other programs check, computed as the bytes come: SHA-256, and SHA-1 as Git names its
/// objects. Our own files have CRC-32C (core/crc32c.h), which is faster.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace slime::net {

class Digest {
 public:
  enum class Kind { kSha1, kSha256 };

  explicit Digest(Kind kind);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void update(std::string_view bytes);

  /// In small hexadecimal digits. Ends the object's use.
  std::string finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

/// Of a file's content. Throws ConfigError where it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace slime::net
