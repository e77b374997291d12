#include "kernels/cuda/peers/cuda_peer_collectives.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/cuda/cuda_device.h"

namespace slime::kernels::cuda {
namespace {

/// Up to here flagged words are the faster way between two H200s (docs/parallel.md).
constexpr int64_t kFlaggedWordsLimit = int64_t{640} << 10;

/// Each rank sends all it has to each other one: with more than two that soon is more than is needed.
constexpr int64_t kMostAmongMany = int64_t{512} << 10;

bool has_whole_packs(const Tensor& x) {
  return x.is_cuda() && x.is_contiguous() && x.nbytes() % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace

void CudaPeerCollectives::FreeHost::operator()(PeerControl* control) const {
  cudaFreeHost(control);
}

int64_t CudaPeerCollectives::memory_bytes(int size) { return PeerLayout::bytes(size); }

CudaPeerCollectives::CudaPeerCollectives(int device, const PeerCollectivesConfig& config,
                                         Tensor memory)
    : deadline_(config.deadline),
      memory_(std::move(memory)),
      flagged_words_limit_(kFlaggedWordsLimit),
      most_bytes_(config.size == 2 ? kMostPeerBytes : kMostAmongMany) {
  if (config.size > kMostPeers)
    throw std::runtime_error(fmt::format("at most {} ranks, not {}", kMostPeers, config.size));
  const c10::DeviceGuard guard(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  std::string why, handle;
  // Whoever fails says so to the others, so that all go on without.
  const auto attempt = [&](const auto& body) {
    if (!why.empty()) return;
    try {
      body();
    } catch (const std::runtime_error& error) {
      why = error.what();
    }
  };
  const auto agree = [&] {
    const auto all = config.all_gather(why);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (!all[rank].empty())
        throw std::runtime_error(fmt::format("rank {} of the group: {}", rank, all[rank]));
    }
  };
  attempt([&] {
    void* control = nullptr;
    check_cuda(cudaHostAlloc(&control, sizeof(PeerControl), cudaHostAllocMapped),
               "page-locked memory");
    control_.reset(new (control) PeerControl{});
    void* mapped = nullptr;
    check_cuda(cudaHostGetDevicePointer(&mapped, control, 0), "mapping memory of the host");
    ranks_.control = static_cast<PeerControl*>(mapped);
    state_ = at::zeros({static_cast<int64_t>(sizeof(PeerState))}, memory_.options());
    ranks_.state = static_cast<PeerState*>(state_.data_ptr());
    // sync: the others write when they have the handle
    check_cuda(cudaStreamSynchronize(stream_of(memory_)), "clearing memory for peers");
    handle = exported_handle(memory_);
  });
  agree();
  const auto handles = config.all_gather(handle);
  ranks_.rank = config.rank;
  ranks_.size = config.size;
  ranks_.deadline_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(config.deadline).count());
  std::vector<std::unique_ptr<IpcPeerMemory>> others;
  for (int rank = 0; rank < config.size; ++rank) {
    if (rank == config.rank) {
      others.push_back(nullptr);
      ranks_.memory[rank] = static_cast<char*>(memory_.data_ptr());
      continue;
    }
    attempt([&] {
      others.push_back(
          std::make_unique<IpcPeerMemory>(device, handles[static_cast<std::size_t>(rank)]));
      ranks_.memory[rank] = others.back()->data();
    });
  }
  agree();
  others_ = std::move(others);
}

bool CudaPeerCollectives::takes(const Tensor& x) const {
  const auto type = x.scalar_type();
  return has_whole_packs(x) && x.numel() > 0 && static_cast<int64_t>(x.nbytes()) <= most_bytes_ &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

void CudaPeerCollectives::set_flagged_words_limit(int64_t bytes) { flagged_words_limit_ = bytes; }

bool CudaPeerCollectives::flags_words(int64_t bytes, int64_t least_rows) const {
  return bytes <= flagged_words_limit_ && least_rows <= kMostFlaggedWordRows;
}

void CudaPeerCollectives::sum_(const Tensor& x) const {
  check(takes(x), "a sum over peers takes it");
  const auto bytes = static_cast<int64_t>(x.nbytes());
  peer_sum(number_of(x), x.data_ptr(), bytes,
           flags_words(bytes, divide_up(bytes, PeerLayout::kRowSlot)), ranks_, stream_of(x));
}

bool CudaPeerCollectives::has_add_norm(const Tensor& residual_TH) const {
  return residual_TH.scalar_type() == at::kBFloat16 && takes(residual_TH) &&
         residual_TH.size(0) <= most_peer_rows() && residual_TH.size(1) % 8 == 0 &&
         residual_TH.size(1) / 8 <= kMostPeerRowPacks;
}

Tensor CudaPeerCollectives::add_norm_(const Tensor& residual_TH, const Tensor& partial,
                                      const Tensor& bias_H, const Tensor& weight_H,
                                      double eps) const {
  const bool is_split = partial.scalar_type() == at::kFloat;
  check(has_add_norm(residual_TH) && has_whole_packs(partial) && has_whole_packs(weight_H) &&
            weight_H.scalar_type() == at::kBFloat16 &&
            (is_split || partial.scalar_type() == at::kBFloat16),
        "a sum over peers with a norm takes it");
  const Tensor normed_TH = at::empty_like(residual_TH);
  PeerAddNorm call;
  call.residual_TH = residual_TH.data_ptr();
  if (is_split) {
    call.partials_STH = partial.const_data_ptr<float>();
    call.num_splits = static_cast<int>(partial.numel() / residual_TH.numel());
  } else {
    call.partial_TH = partial.const_data_ptr();
  }
  call.bias_H = pointer(bias_H);
  call.weight_H = pointer(weight_H);
  call.out_TH = normed_TH.data_ptr();
  call.rows = static_cast<int>(residual_TH.size(0));
  call.hidden = static_cast<int>(residual_TH.size(1));
  call.eps = static_cast<float>(eps);
  peer_add_norm(call, flags_words(static_cast<int64_t>(residual_TH.nbytes()), call.rows), ranks_,
                stream_of(residual_TH));
  return normed_TH;
}

bool CudaPeerCollectives::has_gather_columns(const Tensor& own_RV) const {
  return own_RV.is_cuda() && own_RV.scalar_type() == at::kFloat && own_RV.dim() == 2;
}

Tensor CudaPeerCollectives::gather_columns(const Tensor& own_RV, int64_t columns) const {
  check(has_gather_columns(own_RV) && own_RV.is_contiguous(), "columns are gathered in float32");
  const int64_t rows = own_RV.size(0);
  const Tensor out_RC = at::empty({rows, columns}, own_RV.options());
  PeerGather call;
  call.own_columns = static_cast<int>(own_RV.size(1));
  call.columns = columns;
  call.room = static_cast<int>(divide_up(columns, int64_t{ranks_.size}));
  const int64_t at_once = peer_gather_rows(call.room);
  check(at_once > 0, "a row of all columns fits into the memory of peers");
  for (int64_t row = 0; row < rows; row += at_once) {
    call.rows = static_cast<int>(std::min(at_once, rows - row));
    call.own_RV = own_RV.const_data_ptr<float>() + row * own_RV.size(1);
    call.out_RC = out_RC.data_ptr<float>() + row * columns;
    peer_gather(call, ranks_, stream_of(own_RV));
  }
  return out_RC;
}

std::string CudaPeerCollectives::problem() const {
  if (std::atomic_ref(control_->has_failed).load(std::memory_order_acquire) == 0) return {};
  const uint32_t peer = std::atomic_ref(control_->failed_peer).load(std::memory_order_relaxed);
  if (std::atomic_ref(control_->is_aborted).load(std::memory_order_relaxed) != 0)
    return fmt::format("it was given up while rank {} of the group had not come", peer);
  return fmt::format("rank {} of the group has not come within {} ms", peer, deadline_.count());
}

void CudaPeerCollectives::abort() {
  std::atomic_ref(control_->is_aborted).store(1, std::memory_order_release);
}

}  // namespace slime::kernels::cuda
