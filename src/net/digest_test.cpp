#include "net/digest.h"

#include <gtest/gtest.h>

namespace slime::net {
namespace {

TEST(Sha256, GivesTheValuesOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveWhatTheWholeGives) {
  for (std::size_t size = 0; size < 200; ++size) {
    const std::string bytes(size, 'x');
    Digest digest(Digest::Kind::kSha256);
    digest.update(std::string_view(bytes).substr(0, size / 3));
    digest.update(std::string_view(bytes).substr(size / 3));
    EXPECT_EQ(digest.finish(), sha256(bytes)) << size;
  }
}

TEST(Digest, IsThatOfThePublishedExamples) {
  Digest sha256(Digest::Kind::kSha256);
  sha256.update("a");
  sha256.update("bc");
  EXPECT_EQ(sha256.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest sha1(Digest::Kind::kSha1);
  sha1.update("abc");
  EXPECT_EQ(sha1.finish(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace slime::net
