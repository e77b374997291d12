#pragma once

/// kernels/gpu/peer_collectives.h on NVIDIA devices: the memory, who has which, and what fits.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/peers/peer_kernels.h"
#include "kernels/gpu/peer_collectives.h"

namespace slime::kernels::cuda {

class CudaPeerCollectives final : public PeerCollectives {
 public:
  /// `memory`: of memory_bytes(), zeros, exportable. Throws std::runtime_error on all ranks where one
  /// cannot do it.
  CudaPeerCollectives(int device, const PeerCollectivesConfig& config, Tensor memory);
  CudaPeerCollectives(const CudaPeerCollectives&) = delete;
  CudaPeerCollectives& operator=(const CudaPeerCollectives&) = delete;

  static int64_t memory_bytes(int size);

  void sum_(const Tensor& x) const override;
  bool has_add_norm(const Tensor& residual_TH) const override;
  Tensor add_norm_(const Tensor& residual_TH, const Tensor& partial, const Tensor& bias_H,
                   const Tensor& weight_H, double eps) const override;
  bool has_gather_columns(const Tensor& own_RV) const override;
  Tensor gather_columns(const Tensor& own_RV, int64_t columns) const override;
  bool takes(const Tensor& x) const override;
  void set_flagged_words_limit(int64_t bytes) override;
  std::string problem() const override;
  void abort() override;

 private:
  bool flags_words(int64_t bytes, int64_t least_rows) const;

  std::chrono::milliseconds deadline_;
  Tensor memory_;
  Tensor state_;  // PeerState
  std::vector<std::unique_ptr<IpcPeerMemory>> others_;
  struct FreeHost {
    void operator()(PeerControl* control) const;  // waits for kernels that read it
  };
  std::unique_ptr<PeerControl, FreeHost> control_;  // page-locked memory of the host, mapped
  PeerRanks ranks_;
  int64_t flagged_words_limit_, most_bytes_;  // of a sum
};

}  // namespace slime::kernels::cuda
