#pragma once

/// Models that a measurement makes up: a shape of bench/gpu/workloads.json with uniform weights, on
/// the GPU.

#include <cstdint>
#include <memory>
#include <string>

#include "model/network.h"

namespace slime::bench {

/// Where the shapes are.
inline constexpr const char* kWorkloadsFile = "bench/gpu/workloads.json";

/// Bounds of the uniform weights. With the first, hidden states stay small whatever is generated;
/// with the second, gradients are of ordinary size.
inline constexpr double kGenerationWeightBound = 1e-3;
inline constexpr double kTrainingWeightBound = 0.03;

/// A model of a file of workloads.
struct ShapeOptions {
  std::string file = kWorkloadsFile;
  std::string model = "qwen3-4b";
};

/// Throws ConfigError when the file has no such model.
model::ModelConfig read_shape(const ShapeOptions& options);

/// In bfloat16. The GPU is open.
std::unique_ptr<model::Network> make_up_network(const model::ModelConfig& shape, double bound,
                                                const comm::Mesh& mesh = comm::Mesh::single());
/// The same with matrices in this format.
std::unique_ptr<model::Network> make_up_network(const model::ModelConfig& shape, double bound,
                                                kernels::MatrixFormat matrices);

/// On "cuda" the same, on a GPU that is opened here; on "cpu" in float32. `bound`: of its weights.
std::unique_ptr<model::Network> make_up_network_on(const std::string& device,
                                                   const model::ModelConfig& shape,
                                                   double bound = kGenerationWeightBound);

/// In the host's memory, fast for large models: one block of random numbers again and again, in `type`.
std::unique_ptr<model::Network> make_up_network_on_host(const model::ModelConfig& shape,
                                                        at::ScalarType type, double bound);

/// For keys and values: most_free_bytes(), on "cpu" a gibibyte.
int64_t cache_bytes_on(const std::string& device);

/// For keys and values: four fifths of what the weights leave free on the GPU.
int64_t most_free_bytes();

}  // namespace slime::bench
