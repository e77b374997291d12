#pragma once

/// Difference of a network's weights between two versions, for receivers that have the older one.
/// In bfloat16, small learning rates leave most weights as they are, so a difference is a fraction
/// of the whole; where it would not be, a tensor goes as it is.
///
///   delta = make_delta(weights, old, new, DeltaEncoding::kXor)
///   apply(delta, weights)        old becomes new, bit for bit, or an error: then it is neither
///
/// Bytes of a changed tensor: [elements left as they are, then what changed] again and again; numbers
/// are variable-length (seven bits a byte, low ones first). kXor: one element, the exclusive or of its
/// old and new bits as such a number. kOverwrite: how many elements follow one another, then those.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"
#include "core/tensor.h"
#include "model/weights.h"

namespace slime::model {

enum class DeltaEncoding : uint8_t { kXor, kOverwrite };

struct TensorDelta {
  enum class Form : uint8_t { kXor, kOverwrite, kWhole };
  uint32_t tensor = 0;  // of Weights::tensors()
  Form form = Form::kWhole;
  uint64_t checksum = 0;  // of the tensor's new bytes (core/xxhash64.h)
  std::string bytes;
};

struct WeightDelta {
  uint64_t base = 0;                 // WeightUpdate::publication of the weights that it begins with
  std::vector<TensorDelta> tensors;  // that changed, in the order of Weights::tensors()
  int64_t num_changed = 0;           // elements
  int64_t num_elements = 0;          // of all tensors
  /// Where it is in a file, for receivers that read it there; empty: it is sent.
  std::filesystem::path directory;

  int64_t num_bytes() const;
};

/// Of two flat buffers of `weights`' form, on any device.
WeightDelta make_delta(const Weights& weights, const Tensor& old_N, const Tensor& new_N,
                       DeltaEncoding encoding);

/// The tensor's old bytes become the new ones. An error: the bytes are no delta of it, or what comes of
/// them is not what the checksum says. Then the tensor is whatever it is.
Expected<void> apply(const TensorDelta& delta, Weights& weights);

/// Of a delta in a file: "delta.safetensors" has the bytes under the tensors' names, "delta.json" form and
/// checksum of each. Throws std::system_error.
void write_delta(const WeightDelta& delta, const Weights& weights,
                 const std::filesystem::path& directory, WeightVersion version,
                 WeightVersion base_version);
/// Throws ConfigError for files that are no delta of these weights. `base` and counts are not in them.
WeightDelta read_delta(const std::filesystem::path& directory, const Weights& weights);

}  // namespace slime::model
