#pragma once

/// One GPU of this process: its memory, the kernels of engine and training, CUDA graphs.
///
/// CUDA is in a shared library that is loaded when a GPU is first opened (docs/how/cuda.md), HIP in another one
/// (docs/rocm.md); nothing here mentions them. Layers of a network use `device()`. A caller that needs one part takes that part's interface:
/// GpuMemoryManager, EngineKernels, TrainingKernels.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/gpu/engine_kernels.h"
#include "kernels/gpu/memory_manager.h"
#include "kernels/gpu/product_candidate.h"
#include "kernels/gpu/training_kernels.h"

namespace slime::kernels {

/// A CUDA graph of a step: launched again as a whole, on the same memory.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual void replay() = 0;
  virtual int64_t num_pieces() const { return 1; }
};

/// Launch of a CUDA graph on NVIDIA's GPUs. HIP's graphs are launched whole.
enum class GraphLaunch {
  kWhole,   // for the least time on the GPU: it is busy while the host launches
  kPieces,  // for a GPU that idles until the first kernel starts (kernels/gpu/graph_pieces.h)
};

class Gpu : public GpuMemoryManager, public EngineKernels, public TrainingKernels {
 public:
  virtual const Device& device() const = 0;
  virtual int64_t num_processors() const = 0;
  /// "NVIDIA H200, 132 multiprocessors, driver 13.0".
  virtual std::string description() const = 0;
  /// Each kernel that could compute x W^T in 16 bits or float32, timed: for measurements.
  virtual std::vector<ProductCandidate> product_candidates(const Tensor& x_TI,
                                                           const Tensor& weight_OI,
                                                           bool float_result) const = 0;

  /// Runs `body` in recording: its kernels are not executed until replay(). The body must have run
  /// before with the same shapes (libraries choose their algorithms then) and must not wait for the
  /// GPU. Recordings that never run at the same time can share the memory of their temporaries:
  /// `neighbour` is another one, alive, or null.
  virtual std::unique_ptr<GpuGraph> record(const std::function<void()>& body,
                                           const GpuGraph* neighbour, GraphLaunch launch) = 0;
};

/// Platform of the GPUs that a process uses: NVIDIA's CUDA, AMD's HIP.
enum class GpuPlatform { kCuda, kHip };

/// The word of --device that was chosen for this process: "hip" makes the functions below those of AMD's GPUs, "cuda"
/// those of NVIDIA's, which they are anyway; "cpu" and "auto" change nothing. Throws BugError for another platform than
/// that of a GPU that is open.
void choose_platform(const std::string& device);
GpuPlatform gpu_platform();

/// GPUs that the driver shows this process (CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES counts); 0 without a driver.
/// Opens none.
int count_gpus();

/// Why this program cannot use an NVIDIA GPU here, found without opening one: none is visible, or the build
/// has no kernels for them. Empty: it can. --device auto asks this, and so never takes another platform.
std::string missing_for_gpus();

/// The same of AMD's GPUs, with a sentence for each part that is missing.
std::string missing_for_hip();

/// Abilities of the GPU that is open: all of them, but where a self-test of its platform failed
/// (kernels/gpu/self_tests.h).
struct GpuAbilities {
  bool records = true;            // steps as recordings that are replayed
  bool gives_memory_back = true;  // unmapped memory is the driver's again
  std::vector<std::string> lost;  // a sentence for each that is not so
};
const GpuAbilities& gpu_abilities();

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
