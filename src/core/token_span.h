#pragma once

/// Tokens whose rows come from elsewhere: spans of a prompt that stand for an attachment, such as an
/// image, and the keys by which prefixes are compared.
///
///   ids    = 5  9  0  0  0  0  7        placeholders stand in the span
///   media  = {{.begin = 2, .end = 6, .what = a picture of 4 patches}}
///   keys   = 5  9  k0 k1 k2 k3 7        k_i: top bit and a hash of (attachment key, i)
///
/// A prompt of text has no spans, and its keys are its ids. Keys are a function of ids and spans, so no
/// record has them; neither has it what a vision tower makes of an attachment.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slime {

using TokenId = int32_t;

/// Key by which prefixes compare tokens. Text: its id, which is not negative.
using TokenKey = uint64_t;

struct Attachment {
  /// Of its content; equal keys are taken for equal attachments. Whoever makes an attachment hashes type,
  /// grid and bytes.
  uint64_t key = 0;
  std::string type;             // "image/png"
  std::string bytes;            // as encoded; empty where a record came from JSON
  int64_t t = 1, h = 1, w = 1;  // patches: in time, of the height, of the width
  bool operator==(const Attachment&) const = default;
};

/// Tokens [begin, end) stand for an attachment.
struct MediaSpan {
  int64_t begin = 0;
  int64_t end = 0;
  std::shared_ptr<const Attachment> what;  // not null
};
bool operator==(const MediaSpan& a, const MediaSpan& b);

/// Of one token, in the middle of anything. `media` is in ascending order.
TokenKey key_at(std::span<const TokenId> ids, std::span<const MediaSpan> media, int64_t index);

/// Context that gives equal tokens another KV cache: the caller's own space, another half of the rotary
/// tables, an adapter and its version. Weights are not part of it where a cache holds those of one
/// version. 0: nothing does.
uint64_t key_salt(std::string_view cache_salt, int64_t rotary_offset = 0);

/// Appends the keys of ids [keys.size(), ids.size()). The first key of all is salted: prefixes begin with
/// it, so that those of other salts share nothing.
void extend_keys(std::vector<TokenKey>& keys, std::span<const TokenId> ids,
                 std::span<const MediaSpan> media, uint64_t salt);

/// Number of tokens that two sequences begin with in common.
int64_t common_prefix(std::span<const TokenId> a, std::span<const MediaSpan> media_a,
                      std::span<const TokenId> b, std::span<const MediaSpan> media_b);

/// The first problem of spans of so many tokens, as a sentence about them: they are in order, none is
/// empty, and each has its attachment. Empty: there is none.
std::string problem_of(std::span<const MediaSpan> media, int64_t num_tokens);

/// Rows of a batch that stand for rows [first, first + count) of an attachment.
struct MediaRun {
  int64_t row = 0;
  int64_t first = 0;
  int64_t count = 0;
  std::shared_ptr<const Attachment> what;
};

/// Appends the runs of tokens [begin, end), the first of which is row `row` of a batch.
void append_runs(std::vector<MediaRun>& runs, std::span<const MediaSpan> media, int64_t begin,
                 int64_t end, int64_t row);

}  // namespace slime
