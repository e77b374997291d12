#pragma once

/// kernels::Gpu on one NVIDIA device.

#include <atomic>
#include <map>
#include <mutex>

#include "kernels/cuda/attention/packed_attention.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/peer_collectives.h"

namespace slime::kernels::cuda {

struct AttendCall;
struct RotateCall;

class CudaGpu final : public Gpu, public PeerDevice {
 public:
  /// The device is opened already and has code in this library.
  explicit CudaGpu(int index);

  const Device& device() const override { return device_; }
  int64_t num_processors() const override { return num_processors_; }
  std::string description() const override { return description_; }
  std::vector<ProductCandidate> product_candidates(const Tensor& x_TI, const Tensor& weight_OI,
                                                   bool float_result) const override {
    return device_.product_candidates(x_TI, weight_OI, float_result);
  }
  int64_t free_bytes() const override;
  void release_unused_memory() override;
  std::unique_ptr<GpuMemory> reserve_memory(int64_t bytes) override;
  void make_exportable(const std::function<void()>& body) override;
  std::string export_memory(const Tensor& tensor) override;
  std::unique_ptr<PeerMemory> open_peer_memory(const std::string& handle) override;
  std::unique_ptr<SharedGpuMemory> share_memory(int64_t bytes) override;
  // cuda_gpu_peers.cpp
  std::unique_ptr<PeerCollectives> make_peers(const PeerCollectivesConfig& config) override;
  // cuda_gpu.cpp
  void lock_pages(const Tensor& host) const override;
  void unlock_pages(const Tensor& host) const override;
  GpuMemoryUse memory_use() const override;
  void reset_peak_memory() override;
  void resolve_ids_(Tensor ids_T, const Tensor& sampled_R) const override;
  bool has_tiled_attention(const RotaryShape& heads, at::ScalarType type,
                           at::ScalarType cache) const override;
  bool has_decode_attention(const RotaryShape& heads, at::ScalarType type) const override;
  bool has_packed_attention(const RotaryShape& heads, at::ScalarType type) const override;
  bool has_exact_attention(const RotaryShape& heads, at::ScalarType type) const override;
  Tensor paged_attention(const PagedCall& call) const override;
  Tensor paged_delta(const DeltaCall& call) const override;
  // cuda_gpu_latent.cpp
  bool has_latent_units(int64_t row_size, at::ScalarType type) const override;
  Tensor latent_attention(const LatentCall& call) const override;
  // cuda_gpu_sparse.cpp
  bool has_sparse_decode(const LatentShape& shape, int64_t index_heads, int64_t index_size,
                         at::ScalarType type) const override;
  IndexRows index_rows(const kernels::IndexRowsCall& call) const override;
  Tensor choose_tokens(const IndexCall& call) const override;
  void sample(const Tensor& logits_RV, const SampleRows& rows,
              const SampledRows& sampled) const override;
  std::unique_ptr<GpuGraph> record(const std::function<void()>& body, const GpuGraph* neighbour,
                                   GraphLaunch launch) override;
  void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
              const Tensor& second_moment_N, const Tensor& grad_N,
              std::span<const AdamRange> ranges, const AdamStep& step) const override;
  double sum_of_squares(const Tensor& x_N) const override;

 private:
  void packed_attention(const PagedCall& call, const AttendCall& attend,
                        const Tensor& out_TC) const;
  void exact_attention(const PagedCall& call, const AttendCall& attend) const;
  /// What the two levels of a PackedLaunch look at; undefined: keys are behind the queries in their rows.
  struct PackedKeys {
    Tensor own_CX, earlier_CX;
  };
  /// Writes the rows of the launch: both levels, merged. Returns their logsumexp [T, N].
  Tensor attend_packed(const PackedLaunch& launch, const PackedKeys& keys, const Tensor& query_TX,
                       const RotaryShape& heads, double scale, const Tensor& out_TC) const;
  /// Of the current stream; packed_mutex_ is held as long as it is used.
  PackedAttention& packed_on(cudaStream_t stream) const;
  /// Writes y_TC in the rows of prompts that are attended in the expanded form. q_TNE: rotated.
  void expanded_prompts(const LatentCall& call, const Tensor& q_TNE, const Tensor& y_TC) const;
  /// `rotate`: where the rows are not normed and rotated yet.
  void decode_attention(const PagedCall& call, const AttendCall& attend,
                        const RotateCall* rotate) const;

  int index_;
  int64_t num_processors_ = 0;
  std::string description_;
  CudaDevice device_;
  std::atomic<int64_t> mapped_bytes_{0};               // of reserve_memory() and share_memory()
  mutable std::mutex packed_mutex_;                    // of packed_
  mutable std::map<int64_t, PackedAttention> packed_;  // by stream
};

}  // namespace slime::kernels::cuda
