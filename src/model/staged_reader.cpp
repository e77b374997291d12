#include "model/staged_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::model {
namespace {

constexpr int64_t kPieceAlignment = 16;

int64_t width_of(const StagedTensor& tensor) {
  return static_cast<int64_t>(c10::elementSize(tensor.stored.dtype));
}

}  // namespace

std::vector<std::vector<StagedPiece>> staged_blocks(std::span<const StagedSize> sizes,
                                                    int64_t block_bytes) {
  std::vector<std::vector<StagedPiece>> blocks;
  int64_t used = block_bytes;  // of the last block
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t begin = 0; begin < sizes[i].elements;) {
      if (used + sizes[i].width > block_bytes) {
        blocks.emplace_back();
        used = 0;
      }
      const int64_t size =
          std::min(sizes[i].elements - begin, (block_bytes - used) / sizes[i].width);
      blocks.back().push_back({i, begin, begin + size, used});
      begin += size;
      used = round_up(used + size * sizes[i].width, kPieceAlignment);
    }
  }
  return blocks;
}

/// One reading: its threads take blocks in order, and wait for the copy that was the last to use their memory.
class StagedReader::Call {
 public:
  Call(StagedReader& reader, const std::vector<StagedTensor>& tensors)
      : reader_(reader), tensors_(tensors) {
    std::vector<StagedSize> sizes;
    for (const StagedTensor& tensor : tensors) {
      check(tensor.to.is_contiguous() && tensor.to.device().type() == reader.device_.type() &&
                tensor.to.sizes() == tensor.slices.shape(tensor.stored.shape),
            "a staged tensor goes to contiguous memory of its slices' shape on the device");
      sizes.push_back({tensor.to.numel(), width_of(tensor)});
      auto& runs = runs_.emplace_back();
      const int64_t all =
          static_cast<int64_t>(tensor.stored.end - tensor.stored.begin) / width_of(tensor);
      if (sizes.back().elements > 0)
        tensor.slices.for_each_run(tensor.stored.shape, {0, all},
                                   [&](const Slices::Run& run) { runs.push_back(run); });
    }
    blocks_ = staged_blocks(sizes, reader.options_.block_bytes);
    is_read_.resize(blocks_.size());
  }

  void run() {
    const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    const int64_t count = std::min({static_cast<int64_t>(reader_.options_.num_threads), cores,
                                    static_cast<int64_t>(blocks_.size())});
    {
      std::vector<std::jthread> threads;
      try {
        for (int64_t i = 0; i < count; ++i) threads.emplace_back([this] { read_blocks(); });
        copy_blocks();
      } catch (...) {
        fail(std::current_exception());
      }
    }
    // sync: the blocks are free, and other streams read the tensors next
    if (!reader_.device_.is_cpu()) stream().synchronize();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  c10::Stream stream() const {
    return c10::impl::VirtualGuardImpl(reader_.device_.type()).getStream(reader_.device_);
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    changed_.notify_all();
  }

  size_t memory_of(size_t block) const {
    return block % static_cast<size_t>(reader_.options_.num_blocks);
  }
  int64_t offset_of(size_t block) const {
    return static_cast<int64_t>(memory_of(block)) * reader_.options_.block_bytes;
  }

  void read_blocks() {
    try {
      while (const auto block = next_block()) read(*block);
    } catch (...) {
      fail(std::current_exception());
    }
  }

  /// When its memory is no longer that of another block, or is still being copied from.
  std::optional<size_t> next_block() {
    std::unique_lock lock(mutex_);
    if (error_ || next_ == blocks_.size()) return std::nullopt;
    const size_t block = next_++;
    const auto turns = static_cast<size_t>(reader_.options_.num_blocks);
    changed_.wait(lock, [&] { return error_ || block < num_copied_ + turns; });
    if (error_) return std::nullopt;
    return block;
  }

  void read(size_t block) {
    const auto turns = static_cast<size_t>(reader_.options_.num_blocks);
    // sync: by a thread that has nothing else to do
    if (block >= turns && !reader_.copied_.empty()) reader_.copied_[memory_of(block)].synchronize();
    auto* const memory = static_cast<char*>(reader_.memory_.data_ptr()) + offset_of(block);
    for (const StagedPiece& piece : blocks_[block]) {
      const StagedTensor& tensor = tensors_[piece.tensor];
      const std::vector<Slices::Run>& runs = runs_[piece.tensor];
      auto run =
          std::prev(std::ranges::upper_bound(runs, piece.begin, {}, &Slices::Run::own_begin));
      for (int64_t at = piece.begin; at < piece.end; ++run) {
        const int64_t skipped = at - run->own_begin,
                      size = std::min(run->size - skipped, piece.end - at);
        tensor.file->read_stored(tensor.stored, run->whole_begin + skipped, size,
                                 memory + piece.offset + (at - piece.begin) * width_of(tensor));
        at += size;
      }
    }
    const std::lock_guard lock(mutex_);
    is_read_[block] = true;
    changed_.notify_all();
  }

  void copy_blocks() {
    for (size_t block = 0; block < blocks_.size(); ++block) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return error_ || is_read_[block]; });
        if (error_) return;
      }
      for (const StagedPiece& piece : blocks_[block]) copy(block, piece);
      if (!reader_.copied_.empty()) reader_.copied_[memory_of(block)].record(stream());
      const std::lock_guard lock(mutex_);
      ++num_copied_;
      changed_.notify_all();
    }
  }

  void copy(size_t block, const StagedPiece& piece) const {
    const StagedTensor& tensor = tensors_[piece.tensor];
    const int64_t size = piece.end - piece.begin;
    Tensor from =
        reader_.memory_.narrow(0, offset_of(block) + piece.offset, size * width_of(tensor))
            .view(tensor.stored.dtype);
    const Tensor to = tensor.to.view({-1}).narrow(0, piece.begin, size);
    // A copy between devices that converts does so on the host.
    if (!to.is_cpu() && to.scalar_type() != from.scalar_type())
      from = at::empty_like(from, to.options().dtype(from.scalar_type()))
                 .copy_(from, /*non_blocking=*/true);
    to.copy_(from, /*non_blocking=*/true);
  }

  StagedReader& reader_;
  const std::vector<StagedTensor>& tensors_;
  std::vector<std::vector<Slices::Run>> runs_;  // of each tensor
  std::vector<std::vector<StagedPiece>> blocks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  size_t next_ = 0, num_copied_ = 0;  // blocks
  std::vector<bool> is_read_;
  std::exception_ptr error_;  // the first
};

StagedReader::StagedReader(at::Device device, const StagedOptions& options)
    : device_(device),
      options_(options),
      memory_(at::empty({options.num_blocks * options.block_bytes},
                        at::TensorOptions(at::kByte).pinned_memory(!device.is_cpu()))) {
  check(options.num_blocks > 0 && options.block_bytes % kPieceAlignment == 0, "blocks are aligned");
  for (int64_t i = 0; !device.is_cpu() && i < options.num_blocks; ++i)
    copied_.emplace_back(device.type());
}

void StagedReader::read(const std::vector<StagedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  Call(*this, tensors).run();
}

}  // namespace slime::model
