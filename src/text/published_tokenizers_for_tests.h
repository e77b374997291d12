#pragma once

/// For tests: published tokenizers and chat templates with known answers, which are not in this repository: they lie
/// under $SLIME_SHARED, or ../shared (CONTRIBUTING.md). Tests of them are skipped where they are not.

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "text/packed_files_for_tests.h"

namespace slime::text {

inline constexpr std::array kPublishedTokenizers{"qwen3", "llama3_1", "deepseek_v3"};

inline std::filesystem::path published_tokenizer(const std::string& name) {
  const char* shared = std::getenv("SLIME_SHARED");
  return std::filesystem::path(shared != nullptr ? shared : SLIME_SOURCE_DIR "/../shared") /
         "fixtures/tokenizers" / name;
}

/// Ends the test where the tokenizer is not there.
#define SLIME_NEEDS_PUBLISHED_TOKENIZER(name)                             \
  if (!std::filesystem::exists(::slime::text::published_tokenizer(name))) \
  GTEST_SKIP() << "the published tokenizer " << (name) << " is not in "   \
               << ::slime::text::published_tokenizer(name).parent_path()  \
               << ", where SLIME_SHARED or ../shared puts it (CONTRIBUTING.md)"

}  // namespace slime::text
