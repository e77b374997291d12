#include "net/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "core/error.h"

namespace slime::net {

Proof hmac_sha256(std::string_view key, std::string_view message) {
  static constexpr char kNone = 0;  // a null key would mean another thing
  Proof proof{};
  unsigned size = 0;
  const void* made = ::HMAC(
      ::EVP_sha256(), key.empty() ? &kNone : key.data(), static_cast<int>(key.size()),
      reinterpret_cast<const unsigned char*>(message.data()), message.size(), proof.data(), &size);
  check(made != nullptr && size == proof.size(), "OpenSSL computes HMAC-SHA256");
  return proof;
}

bool is_same_proof(const Proof& a, const Proof& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  const int made =
      ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count));
  if (made != 1) throw ConfigError("the system gives no random bytes");
  return bytes;
}

}  // namespace slime::net
