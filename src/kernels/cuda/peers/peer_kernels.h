#pragma once

/// The kernels of kernels/gpu/peer_collectives.h. Plain pointers, as in rows/rows.h.
///
/// One thread block sends and receives one row, through a slot of its own. Two ways of sending:
///
///   flagged words   Every 8 bytes are 4 of the numbers and 4 of the call's number. Whoever reads them
///                   until the number is right has the numbers too: no fence, twice the bytes.
///   flagged rows    The numbers, then, behind a fence of the system, one flag for the row.
///
/// A block counts the calls in which a block of its index took part, and so do those of that index on
/// the other ranks. Calls take turns with two halves of the slot. What a block writes into was written
/// two of these calls before; the one in between has ended here only because the others had begun it,
/// and so had ended the one before. (A kernel begins when the one before it in the stream has ended.)

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

inline constexpr int kMostPeers = 8;
inline constexpr int kMostPeerRows = 256;
inline constexpr int kMostFlaggedWordRows = 64;
inline constexpr int kMostPeerRowPacks = 2048;  // of 16 bytes: 16,384 numbers in bfloat16
inline constexpr int64_t kMostPeerBytes = int64_t{kMostPeerRows} * kMostPeerRowPacks * 16;

/// What one rank's memory holds, for each of two halves and each rank that sends: slots for flagged
/// words, slots for flagged rows, and the flags of those. Zeros at first.
struct PeerLayout {
  static constexpr int64_t kRowSlot = int64_t{kMostPeerRowPacks} * 16;
  static constexpr int64_t kWordSlot = 2 * kRowSlot;
  static constexpr int64_t kRows = kMostFlaggedWordRows * kWordSlot;  // where these begin
  static constexpr int64_t kFlags = kRows + kMostPeerRows * kRowSlot;
  static constexpr int64_t kOfSender = kFlags + kMostPeerRows * 4;
  static constexpr int64_t bytes(int size) { return 2 * size * kOfSender; }
};

/// Of the host, mapped.
struct PeerControl {
  uint32_t is_aborted;  // by the host
  uint32_t has_failed;  // by the device: a wait ended without what it waited for
  uint32_t failed_peer;
};

/// Of the device, zeros at first.
struct PeerState {
  uint32_t num_calls[kMostPeerRows];  // that have ended, by block
  uint32_t has_failed;
};

struct PeerRanks {
  int rank = 0, size = 1;
  char* memory[kMostPeers] = {};  // as this process sees them; [rank]: its own
  PeerState* state = nullptr;
  PeerControl* control = nullptr;  // the device's address
  uint64_t deadline_ns = 0;
};

/// Rows of a call on this device, on which all thread blocks that wait are at once.
int most_peer_rows();

/// x_N += what the other ranks have; `bytes` is a multiple of 16 and at most kMostPeerBytes, of flagged
/// words at most kMostFlaggedWordRows x kMostPeerRowPacks x 16.
void peer_sum(Number number, void* x_N, int64_t bytes, bool flags_words, const PeerRanks& ranks,
              cudaStream_t stream);

/// As RankCollectives::add_norm_(), in bfloat16; flagged words: at most kMostFlaggedWordRows rows. One of partials_STH (float32) and partial_TH (bfloat16) is not
/// null; bias_H may be.
struct PeerAddNorm {
  void* residual_TH = nullptr;
  const float* partials_STH = nullptr;
  int num_splits = 0;
  const void* partial_TH = nullptr;
  const void* bias_H = nullptr;
  const void* weight_H = nullptr;
  void* out_TH = nullptr;
  int rows = 0, hidden = 0;
  float eps = 0;
};
void peer_add_norm(const PeerAddNorm& call, bool flags_words, const PeerRanks& ranks,
                   cudaStream_t stream);

/// As RankCollectives::gather_columns(), in float32, of rows that peer_gather_rows() takes at once.
struct PeerGather {
  const float* own_RV = nullptr;
  int own_columns = 0;
  float* out_RC = nullptr;
  int64_t columns = 0;  // of all
  int rows = 0;
  int room = 0;  // columns of a rank that has all
};
int peer_gather_rows(int room);
void peer_gather(const PeerGather& call, const PeerRanks& ranks, cudaStream_t stream);

}  // namespace slime::kernels::cuda
