#pragma once

/// A GPU as the engine sees it: what kernels::Device has no word for, because it concerns paged
/// caches, sampling and recorded steps. CUDA is behind it, in a shared library that is loaded when
/// a GPU is first opened (docs/how/cuda.md); nothing here mentions it.
///
/// All work goes to the current stream of the tensors' device and is asynchronous: no call waits
/// for the GPU unless it says so. Tensors are on the GPU unless a line says "host".
///
/// Dimensions: T rows (tokens) of a step, S sequences they belong to, U units of tiled attention, R
/// sampled rows, V vocabulary, N query heads, K key-value heads, D head size, E = (N + 2 K) D.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/adamw.h"
#include "kernels/device.h"
#include "kernels/gated_delta.h"
#include "kernels/gpu/latent.h"
#include "kernels/gpu/memory.h"
#include "kernels/gpu/packed_prompts.h"
#include "kernels/gpu/peer_memory.h"
#include "kernels/gpu/row_extras.h"
#include "kernels/gpu/sparse.h"
#include "kernels/page.h"

namespace slime::kernels {

/// For which layers a launch of the tiled attention kernel is: of those that see all keys some units
/// see a chunk each, and those with a window have few keys anyway.
enum class TiledLayers { kAll, kWithoutWindow, kWithWindow };

/// One launch of the tiled attention kernel over some of the step's sequences. A unit is a tile of
/// (query row, query head of one key-value head) pairs against all their keys. Which units there
/// are is planned on the host (kernels/gpu/paged_units.h).
struct TileLaunch {
  TiledLayers layers = TiledLayers::kAll;
  int64_t tile = 16;       // query rows x heads of a tile: 16, 64 or 128
  int64_t num_units = 0;   // U, as launched: some may be switched off
  Tensor unit_sequence_U;  // int32
  Tensor unit_tile_U;      // int32    number of the tile within its sequence
  Tensor unit_chunk_U;     // int32    which chunk of its sequence's keys it sees
  Tensor unit_is_on_U;     // uint8    0: the unit does nothing
  Tensor chunk_tokens;     // int32 [1]    more than any sequence has: keys are not split
  Tensor num_rows;         // int32 [1]    rows that are real
  // Split keys (kernels/gpu/paged_units.h). Rows of other launches become zero: it is the first.
  int64_t num_partials = 0;  // 0: keys are not split
  Tensor partial_starts;     // int32 [S]
  Tensor merge_starts;       // int32 [T + 1]

  bool is_for(int64_t window) const {
    return layers == TiledLayers::kAll || (layers == TiledLayers::kWithWindow) == (window > 0);
  }
};

/// The launch of the decode kernel: sequences of one row. Planned on the host
/// (kernels/gpu/decode_units.h); the lists may be longer than what is used of them.
struct DecodeLaunch {
  int64_t num_units = 0;    // 0: no launch
  int64_t num_records = 0;  // room for partial results
  Tensor unit_starts;       // int32 [units + 1]
  Tensor segments;          // int32 [segments, 8]: DecodeSegment
  Tensor members;           // int32 [members, 4]: DecodeMember
  Tensor record_starts;     // int32 [S + 1]
};

/// The rows of one step and where their keys and values are. The same for all layers.
struct PagedBatch {
  Tensor slot_T;            // int32  page * kPageTokens + slot, where this row's key and value go
  Tensor row_sequence_T;    // int32
  Tensor index_T;           // int64  in its sequence: a row sees the keys up to its own
  Tensor query_starts;      // int32 [S + 1]
  Tensor page_starts;       // int32 [S + 1]
  Tensor pages;             // int32, flat
  Tensor last_page_tokens;  // int32 [S]  tokens in the last page, this step's included
  Tensor state_S;           // int32  where layers keep states: the sequence's; below 0: padding
  std::vector<TileLaunch> tiles;
  PackedLaunch packed;
  DecodeLaunch decode;
};

struct PagedCall {
  const PagedBatch* batch = nullptr;
  Tensor qkv_TE;              // may be overwritten: its query heads become normed and rotated
  Tensor rotary_row_T;        // int64, of cos and sin
  Tensor q_norm_D, k_norm_D;  // in the precision of qkv or in float32; undefined: no norm
  Tensor cos_PR, sin_PR;      // float32
  Tensor sinks_N;             // attention sinks, in the precision of qkv; undefined: none
  RotaryShape heads;
  TreeAttentionShape attention;
  // [pages, K, kPageTokens, D] of this layer, in the precision of qkv; where there is tiled
  // attention also in fp8 (Float8_e4m3fn): what does not fit becomes +-448.
  Tensor keys, values;
};

/// The gated delta rule of a layer over the rows of a step (kernels/gated_delta.h).
struct DeltaCall {
  const PagedBatch* batch = nullptr;
  DeltaTokens in;  // mixed_TE before the convolution, in the precision of the activations
  DeltaShape shape;
  int64_t taps = 0;
  Tensor conv;  // [E, 1, taps]
  Tensor
      states_PX;  // float32: at each place the state of a sequence in this layer, advanced in place
};

/// Parameters of the sampled rows. The uniform number comes from the host, where the counter-based
/// generator lives: it is the one number that decides the draw.
struct SampleRows {
  Tensor uniform_R;      // float64  in (0, 1)
  Tensor temperature_R;  // float32  > 0
  Tensor top_p_R;        // float32
  Tensor min_p_R;        // float32
  Tensor top_k_R;        // int32    -1: all; 0: the largest logit (greedy)
  Tensor extras_R;       // uint8 [R, sizeof(RowExtras)]; undefined: no row has one
};

/// What a draw gives. The log-prob is of the full distribution at the row's temperature (of the
/// kept tokens where they are reported), NaN (and token 0) for a row whose logits are no numbers.
struct SampledRows {
  Tensor token_R;     // int32
  Tensor log_prob_R;  // float32
  Tensor num_kept_R;  // int32    of rows with a report: kept ids in it, or kHandedOver
};

/// A recorded step: launched again as a whole, on the same memory.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual void replay() = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const Device& device() const = 0;
  virtual int64_t num_processors() const = 0;
  /// "NVIDIA H200, 132 multiprocessors, driver 13.0".
  virtual std::string description() const = 0;
  /// Bytes that could be allocated now, those that the allocator keeps for reuse included.
  virtual int64_t free_bytes() const = 0;
  /// Returns what the allocator keeps for reuse to the driver, so that large tensors fit again.
  virtual void release_unused_memory() = 0;
  /// Addresses with pages behind them, which can be given back for a while. Throws
  /// c10::OutOfMemoryError.
  virtual std::unique_ptr<GpuMemory> reserve_memory(int64_t bytes) = 0;
  /// Tensors on the GPU that `body` makes can be exported; others need not be.
  virtual void make_exportable(const std::function<void()>& body) = 0;
  /// The handle of a contiguous tensor made so, with which processes that have other GPUs of this host
  /// write to its memory (kernels/gpu/peer_memory.h); bytes, not text. Throws std::runtime_error where
  /// there is no such thing.
  virtual std::string export_memory(const Tensor& tensor) = 0;
  /// What another process has exported. Throws std::runtime_error, with the reason, where this GPU
  /// cannot reach it.
  virtual std::unique_ptr<PeerMemory> open_peer_memory(const std::string& handle) = 0;
  /// Memory for this process and others; what it holds is not defined. Throws c10::OutOfMemoryError.
  virtual std::unique_ptr<SharedGpuMemory> share_memory(int64_t bytes) = 0;
  /// Locks the pages of a tensor on the host, so that copies to and from it run beside kernels;
  /// they are unlocked before it goes.
  virtual void lock_pages(const Tensor& host) const = 0;
  virtual void unlock_pages(const Tensor& host) const = 0;
  virtual GpuMemoryUse memory_use() const = 0;
  virtual void reset_peak_memory() = 0;

  /// An id below zero stands for the token that row -id - 1 of the previous step drew: those are
  /// replaced, in ids_T (int64).
  virtual void resolve_ids_(Tensor ids_T, const Tensor& sampled_R) const = 0;

  /// True when the tiled kernels have this shape with pages in precision `cache`; otherwise
  /// paged_attention takes the plain one.
  virtual bool has_tiled_attention(const RotaryShape& heads, at::ScalarType type,
                                   at::ScalarType cache) const = 0;
  /// True when sequences of one row go into a DecodeLaunch; otherwise they are tiles like others.
  virtual bool has_decode_attention(const RotaryShape& heads, at::ScalarType type) const = 0;
  /// True when long prompts without a window may go into a PackedLaunch.
  virtual bool has_packed_attention(const RotaryShape& heads, at::ScalarType type) const = 0;
  /// Writes the step's keys and values into their slots, then attends. Returns [T, N D].
  virtual Tensor paged_attention(const PagedCall& call) const = 0;
  /// Advances the states of the step's sequences by their rows. Returns float32 [T, N V].
  virtual Tensor paged_delta(const DeltaCall& call) const = 0;

  /// True when sequences of one row go into a DecodeLaunch of latent attention, whose cache has rows of
  /// so many numbers.
  virtual bool has_latent_units(int64_t row_size, at::ScalarType type) const = 0;
  /// Writes the rows of the step's tokens into their slots, then attends in the absorbed form. Returns
  /// [T, N V].
  virtual Tensor latent_attention(const LatentCall& call) const = 0;

  /// True when index_rows() and choose_tokens() have an indexer of so many heads of a size, and
  /// latent_attention() such heads to look at what it chose; for up to kRecordedRows.back() rows.
  virtual bool has_sparse_decode(const LatentShape& shape, int64_t index_heads, int64_t index_size,
                                 at::ScalarType type) const = 0;
  virtual IndexRows index_rows(const IndexRowsCall& call) const = 0;
  /// Writes the rows' keys into their slots, then chooses: int32 [T, C], the places of the chosen tokens in
  /// their order. Of a row that sees fewer than C what is behind them is anything.
  virtual Tensor choose_tokens(const IndexCall& call) const = 0;

  /// Draws as kernels/cpu/sample.h does: the same uniform number gives the same token where the
  /// logits are the same. These are changed in place where a row wants that (row_extras.h).
  virtual void sample(const Tensor& logits_RV, const SampleRows& rows,
                      const SampledRows& sampled) const = 0;

  /// Runs `body` in recording: its kernels are not executed until replay(). The body must have run
  /// before with the same shapes (libraries choose their algorithms then) and must not wait for the
  /// GPU. Recordings that never run at the same time can share the memory of their temporaries:
  /// `neighbour` is another one, alive, or null.
  virtual std::unique_ptr<GpuGraph> record(const std::function<void()>& body,
                                           const GpuGraph* neighbour) = 0;

  /// As in kernels/adamw.h; float32 or 16-bit weights.
  virtual void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
                      const Tensor& second_moment_N, const Tensor& grad_N,
                      std::span<const AdamRange> ranges, const AdamStep& step) const = 0;
  /// Waits for the GPU. float32.
  virtual double sum_of_squares(const Tensor& x_N) const = 0;
};

/// GPUs that the driver shows this process (CUDA_VISIBLE_DEVICES counts); 0 without a driver. Opens
/// none.
int count_gpus();

/// Why this program cannot use a GPU here, found without opening one: none is visible, or the build
/// has no kernels for them. Empty: it can.
std::string missing_for_gpus();

/// Of ATen's operations on the host in a process with a GPU. They are small: gathers of a batch, lists,
/// sums of a loss. Handing them to all cores takes longer than doing them (tp 2 of the 4B on 32 cores:
/// the GPU waited 113 ms of a step, with 8 threads 34).
inline constexpr int kMostHostThreads = 8;

/// The GPU of this process. The first call loads the libraries and opens it; throws ConfigError
/// with what is missing and what would help: no driver, no device, libraries that are not there, a
/// device that this build has no code for. From then on ATen has at most kMostHostThreads.
Gpu& open_gpu();

/// The one that open_gpu() opened. Throws BugError before that.
Gpu& opened_gpu();

}  // namespace slime::kernels
