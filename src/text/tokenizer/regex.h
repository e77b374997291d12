#pragma once

/// A compiled regular expression over UTF-8, matched by PCRE2's just-in-time compiler.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace slime::text {

/// Bytes [begin, end) of a text.
struct Range {
  uint32_t begin;
  uint32_t end;
  bool operator==(const Range&) const = default;
};

/// Immutable and safe to share between threads.
class Regex final {
 public:
  /// `pattern` is in Oniguruma's dialect.
  static Expected<Regex> compile(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Appends all matches in order, none overlapping. `text` is valid UTF-8 below 2 GiB. Throws
  /// ConfigError when the search exceeds its step or memory limit, as a hostile pattern can make
  /// it.
  void find_all(std::string_view text, std::vector<Range>& matches) const;

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace slime::text
