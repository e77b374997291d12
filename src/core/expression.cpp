#include "core/expression.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>

#include "core/error.h"

namespace slime {
namespace {

constexpr std::size_t kLongestPattern = 4096;
/// Steps of one match: a pattern for names needs hundreds, and so many take milliseconds.
constexpr uint32_t kMostSteps = 20'000;
constexpr uint32_t kMostMemoryKib = 16 << 10;
constexpr uint32_t kDeepestNesting = 100;  // of parentheses

struct Freed {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Expression::Compiled {
  std::string text, what;
  Owned<pcre2_code> code;
  Owned<pcre2_match_data> match;
  Owned<pcre2_match_context> limits;
};

Expression::Expression(std::string_view text, std::string_view what)
    : compiled_(std::make_unique<Compiled>()) {
  const auto refuse = [&](std::string_view why) {
    throw ConfigError(
        fmt::format("{}: \"{}\" is no regular expression: {}", what, text.substr(0, 200), why));
  };
  if (text.size() > kLongestPattern)
    refuse(fmt::format("it is longer than {} bytes", kLongestPattern));
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  check(context != nullptr, "PCRE2 allocates a compile context");
  pcre2_set_parens_nest_limit(context.get(), kDeepestNesting);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->text = text;
  compiled_->what = what;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                      context.get()));
  if (!compiled_->code) refuse(fmt::format("{} at byte {}", message_of(error), offset));
  compiled_->match.reset(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  compiled_->limits.reset(pcre2_match_context_create(nullptr));
  check(compiled_->match && compiled_->limits, "PCRE2 allocates a match");
  pcre2_set_match_limit(compiled_->limits.get(), kMostSteps);
  pcre2_set_heap_limit(compiled_->limits.get(), kMostMemoryKib);
}

Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;

bool Expression::matches(std::string_view text, unsigned options) const {
  const int found =
      pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                  options, compiled_->match.get(), compiled_->limits.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw ConfigError(fmt::format("{}: \"{}\" cannot be looked for in \"{}\": {}", compiled_->what,
                                  compiled_->text.substr(0, 200), text.substr(0, 200),
                                  message_of(found)));
  return true;
}

bool Expression::is_whole(std::string_view text) const {
  return matches(text, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
}

bool Expression::is_in(std::string_view text) const { return matches(text, 0); }

std::string Expression::first_group(std::string_view text) const {
  if (!is_whole(text) || pcre2_get_ovector_count(compiled_->match.get()) < 2) return "";
  const PCRE2_SIZE* places = pcre2_get_ovector_pointer(compiled_->match.get());
  if (places[2] == PCRE2_UNSET || places[3] < places[2]) return "";
  return std::string(text.substr(places[2], places[3] - places[2]));
}

}  // namespace slime
