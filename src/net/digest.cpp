#include "net/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/error.h"

namespace slime::net {
namespace {

constexpr std::size_t kReadBlock = std::size_t{1} << 20;

}  // namespace

Digest::Digest(Kind kind) : context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
  const EVP_MD* algorithm = kind == Kind::kSha1 ? ::EVP_sha1() : ::EVP_sha256();
  check(context_ && ::EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1,
        "OpenSSL begins a checksum");
}

Digest::~Digest() = default;

void Digest::update(std::string_view bytes) {
  check(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
        "OpenSSL takes bytes of a checksum");
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  check(::EVP_DigestFinal_ex(context_.get(), sum.data(), &size) == 1, "OpenSSL ends a checksum");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", sum[i]);
  return text;
}

std::string sha256(std::string_view bytes) {
  Digest digest(Digest::Kind::kSha256);
  digest.update(bytes);
  return digest.finish();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  Digest digest(Digest::Kind::kSha256);
  std::vector<char> block(kReadBlock);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0)
    digest.update({block.data(), static_cast<std::size_t>(file.gcount())});
  return digest.finish();
}

}  // namespace slime::net
