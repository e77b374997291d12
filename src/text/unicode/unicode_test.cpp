#include "text/unicode/unicode.h"

#include <gtest/gtest.h>

#include "text/tokenizer/byte_alphabet.h"
#include "text/unicode/normalize.h"

namespace slime::text {
namespace {

TEST(Utf8, EachMaximalInvalidPrefixBecomesOneReplacement) {
  EXPECT_EQ(to_valid_utf8("a\xE4\xBD\xA0"
                          "b"),
            "a\u4F60"
            "b");
  EXPECT_EQ(to_valid_utf8("\xE4\xBD"
                          "b"),
            "\uFFFD"
            "b");
  EXPECT_EQ(to_valid_utf8("\xE0\x80\x80"),
            "\uFFFD\uFFFD\uFFFD");  // overlong: the second byte cannot follow
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_FALSE(is_valid_utf8("12345678\xC0\xAF"));
  EXPECT_TRUE(is_valid_utf8("12345678\u00E9\u4F60\U0001F600"));
}

TEST(Utf8, AnIncompleteCharacterIsLeftUndecided) {
  std::string out;
  EXPECT_EQ(append_decided("ab\xF0\x9F\x98", out), 2u);
  EXPECT_EQ(out, "ab");
}

TEST(Normalize, FormsOfAccentsLigaturesAndHangul) {
  EXPECT_EQ(normalize("e\u0301\u0323", NormalForm::kNfc),
            "\u1EB9\u0301");  // marks are sorted, then composed
  EXPECT_EQ(normalize("\u00E9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize("\uFB01\u2460", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(normalize("\u212B", NormalForm::kNfc), "\u00C5");
  EXPECT_EQ(normalize("\u1112\u1161\u11AB", NormalForm::kNfc), "\uD55C");
  EXPECT_EQ(normalize("\uD55C", NormalForm::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(normalize("\u0958", NormalForm::kNfc), "\u0915\u093C");  // excluded from composition
}

TEST(Normalize, PlainTextsAreTheirOwnNfc) {
  EXPECT_TRUE(is_plainly_nfc("abc \u00E9 \u4E2D \uAC00 \U0001F600"));
  for (const char* text : {"e\u0301", "\u212B", "\u0958", "\u1161", "a\u0323"}) {
    EXPECT_FALSE(is_plainly_nfc(text)) << text;
  }
}

TEST(ByteAlphabet, SpellsEveryByteAndBack) {
  std::string bytes, spelling;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  append_spelling(bytes, spelling);
  EXPECT_EQ(spelled_bytes(spelling), bytes);
  EXPECT_EQ(spelled_bytes("\u0120the"), " the");
  EXPECT_EQ(spelled_bytes("\u4E2D"), std::nullopt);
}

}  // namespace
}  // namespace slime::text
