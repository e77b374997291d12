#pragma once

/// Checksums of published files, computed as the bytes come: SHA-256, and SHA-1 as Git names its objects.

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

}  // namespace slime::net
