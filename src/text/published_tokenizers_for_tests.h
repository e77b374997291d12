#pragma once

/// Published tokenizers and chat templates with known answers, which are not in this repository: they lie
/// under $SLIME_SHARED, or ../shared (CONTRIBUTING.md). Tests of them are skipped where they are not.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace slime::text {

inline constexpr std::array kPublishedTokenizers{"qwen3", "llama3_1", "deepseek_v3"};

inline std::filesystem::path published_tokenizer(const std::string& name) {
  const char* shared = std::getenv("SLIME_SHARED");
  return std::filesystem::path(shared != nullptr ? shared : SLIME_SOURCE_DIR "/../shared") /
         "fixtures/tokenizers" / name;
}

/// The text of a file that xz made; empty: there is no xz.
inline std::string unpacked(const std::filesystem::path& file) {
  std::FILE* pipe = ::popen(("xz -dc '" + file.string() + "'").c_str(), "r");
  std::string text;
  if (pipe == nullptr) return text;
  std::vector<char> buffer(1 << 16);
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  ::pclose(pipe);
  return text;
}

/// Ends the test where the tokenizer is not there.
#define SLIME_NEEDS_PUBLISHED_TOKENIZER(name)                             \
  if (!std::filesystem::exists(::slime::text::published_tokenizer(name))) \
  GTEST_SKIP() << "the published tokenizer " << (name) << " is not in "   \
               << ::slime::text::published_tokenizer(name).parent_path()  \
               << ", where SLIME_SHARED or ../shared puts it (CONTRIBUTING.md)"

}  // namespace slime::text
