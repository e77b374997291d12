#pragma once

/// Sampling extras of a row: changed logits before sampling, and after it the best tokens and the
/// ids that survived truncation. Plain numbers: both compilers see this file.

#include <cstdint>

namespace slime::kernels {

/// One token id of a request's list and how often it was sampled, or what is added to its logit.
struct TokenCount {
  int32_t id = 0;
  int32_t count = 0;
};
struct TokenBias {
  int32_t id = 0;
  float bias = 0;
};

/// What changes the logits of one request, in device memory for as long as it runs. Behind it
/// follow TokenCount [room], TokenBias [num_biases] and int32 [num_forbidden].
///
/// Each draw of the request counts its token there, so the list is right also where the host does
/// not know the last token yet.
struct alignas(8) LogitChanges {
  double frequency_penalty = 0;
  double presence_penalty = 0;
  float repetition_penalty = 1;
  int32_t room = 0;           // for different ids; 0: tokens are not counted
  int32_t num_counts = 0;     // ids that were sampled
  int32_t num_biases = 0;     // equal ids are neighbours, in the order in which they are added
  int32_t num_forbidden = 0;  // ids that are impossible before the minimum length
  int32_t unused = 0;
};

/// The largest logit of a chunk and the sum of exp((logit - largest) / temperature): of all ids, changed as
/// the row wants it, and of those that are allowed.
struct ChunkMasses {
  float largest = 0, sum = 0;
  float allowed_largest = 0, allowed_sum = 0;
};
inline constexpr int64_t kMassChunk = 4096;

/// Extras of one row. All zero: none.
struct alignas(8) RowExtras {
  LogitChanges* changes = nullptr;  // null: logits stay what they are
  /// Device memory: bit id % 32 of word id / 32 for each id that may be sampled; null: all may.
  const uint32_t* allowed = nullptr;
  /// Locked host memory, which the kernel writes: num_top pairs of a log-prob (float32) and an id
  /// (-1: there are no more, the others are impossible), then the kept ids; or, where these are too many to be sorted, all logits (float32).
  uint32_t* report = nullptr;
  /// Locked host memory, which the kernel writes: of each kMassChunk ids, with `allowed`; null: nobody asks.
  ChunkMasses* masses = nullptr;
  int32_t num_top = 0;    // best tokens to report
  uint8_t forbids = 0;    // 1: the minimum length is not reached
  uint8_t keeps_ids = 0;  // 1: report the kept ids and take the log-prob among them
  uint8_t keeps_log_probs =
      0;  // 1: with keeps_ids, their log-probs kMostReported words behind the ids
  uint8_t unused[1] = {};
};

/// Best tokens and kept ids are sorted on the device up to so many.
inline constexpr int32_t kMostReported = 4096;
/// Stands for the number of kept ids where all logits were handed over.
inline constexpr int32_t kHandedOver = -1;

/// 32-bit words that a row's report takes.
constexpr int64_t report_words(int64_t vocab, int64_t num_top, bool keeps_ids,
                               bool keeps_log_probs = false) {
  const int64_t top = num_top < vocab ? num_top : vocab;
  const int64_t listed =
      2 * top + (keeps_ids ? kMostReported : 0) + (keeps_log_probs ? kMostReported : 0);
  const bool may_hand_over = keeps_ids || top > kMostReported;
  return may_hand_over && vocab > listed ? vocab : listed;
}

}  // namespace slime::kernels
