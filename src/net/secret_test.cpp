#include "net/secret.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace slime::net {
namespace {

std::string hexadecimal(const Proof& proof) {
  std::string text;
  for (const unsigned char byte : proof) text += fmt::format("{:02x}", byte);
  return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(Secret, HmacSha256IsThatOfTheStandard) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(131, '\xaa'),
                                    "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secret, ProofsAreTheSameOnlyInEveryByte) {
  const Proof proof = hmac_sha256("k", "m");
  EXPECT_TRUE(is_same_proof(proof, hmac_sha256("k", "m")));
  for (std::size_t i = 0; i < proof.size(); ++i) {
    Proof other = proof;
    other[i] ^= 1;
    EXPECT_FALSE(is_same_proof(proof, other)) << i;
  }
}

TEST(Secret, RandomBytesDoNotRepeat) {
  EXPECT_EQ(random_bytes(32).size(), 32U);
  EXPECT_NE(random_bytes(32), random_bytes(32));
}

}  // namespace
}  // namespace slime::net
