#pragma once

/// Reader of files' tensors into the memory of a GPU. Several threads read into blocks of locked memory, which are copied
/// from there while the next ones are read; numbers are converted on the GPU.
///
///   file --threads--> blocks in turn --this thread's stream--> tensors

#include <c10/core/Event.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "model/safetensors.h"
#include "model/slices.h"

namespace slime::model {

/// A tensor of a file, or a rank's slices of one, and where it goes.
struct StagedTensor {
  const SafetensorsFile* file = nullptr;  // open
  StoredTensor stored;                    // its shape may be another one of as many elements
  Slices slices;
  Tensor to;  // contiguous, of the slices' shape
};

/// Part of a tensor that is read into a block.
struct StagedPiece {
  size_t tensor = 0;           // among those of a call
  int64_t begin = 0, end = 0;  // of its elements
  int64_t offset = 0;          // bytes, in the block
};

/// Size of a tensor that is staged.
struct StagedSize {
  int64_t elements = 0, width = 0;  // bytes of one
};

/// Pieces of tensors in each block, in the order of the tensors. They begin at multiples of 16 bytes.
std::vector<std::vector<StagedPiece>> staged_blocks(std::span<const StagedSize> sizes,
                                                    int64_t block_bytes);

/// Memory and threads of a reader.
struct StagedOptions {
  int64_t num_blocks = 16, block_bytes = 2 << 20;  // locked as long as the reader lives
  int num_threads = 8;                             // at most, and no more than there are cores
};

class StagedReader final {
 public:
  explicit StagedReader(at::Device device, const StagedOptions& options = {});
  StagedReader(const StagedReader&) = delete;
  StagedReader& operator=(const StagedReader&) = delete;

  /// All are there when it returns, also for other streams. One call at a time. Throws ConfigError when a file ends
  /// early; what has come until then is anything.
  void read(const std::vector<StagedTensor>& tensors);

 private:
  class Call;

  const at::Device device_;
  const StagedOptions options_;
  const Tensor memory_;  // the blocks' bytes
  std::vector<c10::Event>
      copied_;  // of each block, the last copy from it; on a CPU copies are over at once
};

}  // namespace slime::model
