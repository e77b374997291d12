#include "core/token_span.h"

#include <fmt/format.h>

#include "core/splitmix64.h"
#include "core/xxhash64.h"

namespace slime {
namespace {

/// No id has it.
constexpr TokenKey kHashed = TokenKey{1} << 63;

/// The span that the token is in; null: none.
const MediaSpan* span_at(std::span<const MediaSpan> media, int64_t index) {
  const auto next = std::ranges::upper_bound(media, index, {}, &MediaSpan::begin);
  if (next == media.begin() || std::prev(next)->end <= index) return nullptr;
  return &*std::prev(next);
}

TokenKey key_of_row(const Attachment& attachment, int64_t row) {
  return kHashed | splitmix64(attachment.key ^ splitmix64(static_cast<uint64_t>(row)));
}

}  // namespace

bool operator==(const MediaSpan& a, const MediaSpan& b) {
  if (a.begin != b.begin || a.end != b.end) return false;
  return a.what == b.what || (a.what != nullptr && b.what != nullptr && *a.what == *b.what);
}

TokenKey key_at(std::span<const TokenId> ids, std::span<const MediaSpan> media, int64_t index) {
  const MediaSpan* span = span_at(media, index);
  if (span != nullptr) return key_of_row(*span->what, index - span->begin);
  return static_cast<uint32_t>(ids[static_cast<std::size_t>(index)]);
}

uint64_t key_salt(std::string_view cache_salt, int64_t rotary_offset) {
  if (cache_salt.empty() && rotary_offset == 0) return 0;
  const uint64_t hash = xxhash64(cache_salt, static_cast<uint64_t>(rotary_offset));
  return hash == 0 ? 1 : hash;
}

void extend_keys(std::vector<TokenKey>& keys, std::span<const TokenId> ids,
                 std::span<const MediaSpan> media, uint64_t salt) {
  const std::size_t begin = keys.size();
  if (begin >= ids.size()) return;
  keys.reserve(ids.size());
  for (std::size_t i = begin; i < ids.size(); ++i) keys.push_back(static_cast<uint32_t>(ids[i]));
  for (const MediaSpan& span : media) {
    const auto end = std::min(span.end, static_cast<int64_t>(ids.size()));
    for (int64_t i = std::max(span.begin, static_cast<int64_t>(begin)); i < end; ++i)
      keys[static_cast<std::size_t>(i)] = key_of_row(*span.what, i - span.begin);
  }
  if (begin == 0 && salt != 0) keys[0] = kHashed | splitmix64(salt ^ splitmix64(keys[0]));
}

int64_t common_prefix(std::span<const TokenId> a, std::span<const MediaSpan> media_a,
                      std::span<const TokenId> b, std::span<const MediaSpan> media_b) {
  const auto common = static_cast<int64_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (media_a.empty() && media_b.empty()) return common;
  int64_t same = 0;
  while (same < common && key_at(a, media_a, same) == key_at(b, media_b, same)) ++same;
  return same;
}

std::string problem_of(std::span<const MediaSpan> media, int64_t num_tokens) {
  int64_t last = 0;
  for (const MediaSpan& span : media) {
    if (span.what == nullptr)
      return fmt::format("tokens {} to {} stand for no attachment", span.begin, span.end);
    if (span.begin < last || span.end <= span.begin || span.end > num_tokens) {
      return fmt::format(
          "tokens {} to {} are no span behind the one that ends at {}, within {} tokens",
          span.begin, span.end, last, num_tokens);
    }
    last = span.end;
  }
  return {};
}

void append_runs(std::vector<MediaRun>& runs, std::span<const MediaSpan> media, int64_t begin,
                 int64_t end, int64_t row) {
  for (const MediaSpan& span : media) {
    const int64_t first = std::max(span.begin, begin), last = std::min(span.end, end);
    if (first < last)
      runs.push_back({row + first - begin, first - span.begin, last - first, span.what});
  }
}

}  // namespace slime
