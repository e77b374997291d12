#pragma once

/// For tests: files that xz made.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::text {

/// The text of a packed file, by xz or by Python where there is none; empty when it cannot be read.
inline std::string unpacked(const std::filesystem::path& file) {
  const std::string name = "'" + file.string() + "'";
  const std::string python =
      "import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())";
  std::FILE* pipe = ::popen(
      ("xz -dc " + name + " 2>/dev/null || python3 -c '" + python + "' " + name).c_str(), "r");
  std::string text;
  if (pipe == nullptr) return text;
  std::vector<char> buffer(1 << 16);
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  ::pclose(pipe);
  return text;
}

inline json::value unpacked_json(const std::filesystem::path& file) {
  return parse_json(unpacked(file), file.string());
}

}  // namespace slime::text
