#include "text/tokenizer/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include "core/error.h"
#include "text/tokenizer/regex_dialect.h"
#include "text/unicode/unicode.h"

namespace slime::text {

template <auto free>
struct Freed {
  void operator()(auto* pointer) const { free(pointer); }
};

namespace {

constexpr std::size_t kPatternLimitBytes = 16 << 10;
constexpr std::size_t kJitStackBytes = 64 << 20;  // grown on demand: deep only for repeated groups
/// Of the interpreter, which takes over when that is too little.
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr uint32_t kMatchLimit = 50'000'000;  // steps of one match

using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

/// What a search writes to; one per thread, reused.
struct Workspace {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  JitStack stack{pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};

  Workspace() {
    check(match && stack && context, "PCRE2 allocates a match workspace");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  bool is_jit = false;
  std::string pattern;
};

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}

Expected<Regex> Regex::compile(std::string_view pattern) {
  const auto reject = [&](std::string_view why) {
    return failure(fmt::format("is a regular expression we do not understand, \"{}\": {}",
                               pattern.substr(0, 200), why));
  };
  if (pattern.size() > kPatternLimitBytes)
    return reject(fmt::format("longer than {} bytes", kPatternLimitBytes));
  const Expected<std::string> translated = to_pcre2(pattern);
  if (!translated) return reject(translated.error().message);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  check(context != nullptr, "PCRE2 allocates a compile context");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  auto compiled = std::make_unique<Compiled>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get()));
  if (!compiled->code)
    return reject(fmt::format("{} at byte {} of its PCRE2 form", message_of(error), offset));
  compiled->is_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled->pattern = pattern;
  return Regex(std::move(compiled));
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, std::vector<Range>& matches) const {
  thread_local Workspace workspace;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match_at = [&](std::size_t start) {
    int count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_->is_jit) {
      count = pcre2_jit_match(compiled_->code.get(), subject, text.size(), start,
                              PCRE2_NO_UTF_CHECK, workspace.match.get(), workspace.context.get());
    }
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(compiled_->code.get(), subject, text.size(), start,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, workspace.match.get(),
                          workspace.context.get());
    }
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
      throw ConfigError(fmt::format(
          "the tokenizer's regular expression \"{}\" gave up at byte {} of a text of {} bytes: {}",
          compiled_->pattern, start, text.size(), message_of(count)));
    }
    return count >= 0;
  };
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(workspace.match.get());
  std::size_t start = 0, last_end = static_cast<std::size_t>(-1);
  while (start <= text.size() && match_at(start)) {
    const std::size_t begin = found[0], end = found[1];
    if (begin > end) break;  // \K in a lookahead; nothing sensible follows
    if (begin == end) {
      // An empty match counts unless it touches the match before; the search goes on one character
      // later.
      if (end != last_end)
        matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      last_end = end;
      start = end < text.size() ? end + decode_char(text.data() + end).length : end + 1;
      continue;
    }
    matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    start = last_end = end;
  }
}

}  // namespace slime::text
